"""Sections of the README's table on drafts and verification."""

from __future__ import annotations

import statistics
from typing import Any

__all__ = ["acceptance", "divergence", "spread", "verified"]


def spread(ends: list[float], digits: int) -> str:
    """Return a range."""
    return f"{ends[0]:.{digits}f}–{ends[1]:.{digits}f}"


def verified(data: dict[str, Any]) -> str:
    """Return tokens a second of every way to draft, beside one by one."""
    lines = []
    for row in data["rows"]:
        hf = row["hf_tokens_per_s"]
        cells = (
            f"{row['context_tokens']:,} × {row['batch']}",
            f"T = {row['temperature']:g}" if row["temperature"] else "greedy",
            f"`{row['compressor']}`",
            "" if row["mean_accepted"] is None else f"{row['mean_accepted']:.1f}",
            f"{row['tokens_per_s']:.1f}",
            f"{row['full_tokens_per_s']:.1f}",
            "" if hf is None else f"{hf:.1f}",
            f"**{row['ratio']:.2f} ×** ({spread(row['spread'], 2)})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    plan, compared = data["plan"], sum(row["tokens_compared"] for row in data["rows"])
    differ = sum(not row["identical"] for row in data["rows"])
    processor = data["machine"]["cpu_capability"]
    same = "all are the same" if not differ else f"{differ} rows differ"
    return (
        f"\nDrafts and verification beside one token a step (`bench/verified.py`, {processor}), "
        f"tokens a second after the first\ntoken, answers of {plan['new_tokens']} tokens; of "
        f"{compared:,} tokens compared {same}:\n\n"
        "| context × requests | choice | drafts on | accepted a round | tokens/s | one by one | "
        "Hugging Face | ratio |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def acceptance(data: dict[str, Any]) -> str:
    """Return draft tokens accepted by the bits of a base."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in data["rows"]:
        if row["kind"] == "base":
            by_name.setdefault(row["compressor"].replace("sigma", "σ"), []).append(row)
    lines = []
    for name, found in by_name.items():
        sides = ("draft", "k", "v")
        bits = (statistics.mean(row[f"{of}_bits_per_scalar"] for row in found) for of in sides)
        accepted = " / ".join(
            "" if row["mean_accepted"] is None else f"{row['mean_accepted']:.1f}" for row in found
        )
        lines.append(f"| {name} | {' | '.join(f'{b:.2f}' for b in bits)} | {accepted} |")
    total, plan = data["total"], data["plan"]
    chosen = " / ".join(f"T = {t:g}" if t else "greedy" for t in plan["temperatures"])
    return (
        f"\nDraft tokens accepted of {plan['draft_tokens']}, by the base's bits "
        "(`bench/acceptance.py`; more in\n`bench/results/acceptance.svg`); over "
        f"{len({row['compressor'] for row in data['rows']})} choices of what to draft on "
        f"{total['tokens_identical']:,} of {total['tokens_compared']:,} tokens are those of\n"
        "one-token decoding:\n\n"
        f"| step of K, of V | bits read | of K | of V | accepted, {chosen} |\n"
        "|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def divergence(data: dict[str, Any]) -> str:
    """Return where answers that are never verified leave the exact ones."""
    lines = [
        f"| `{row['compressor']}` | {row['kind']} | {row['draft_bits_per_scalar']:.2f} "
        f"| {row['draft_alone_identical']} of {row['documents']} "
        f"| {row['median_first_divergence']} | {row['draft_alone_kl_nats']:.3f} "
        f"| {row['verified_identical']} of {row['documents']} |"
        for row in data["rows"]
    ]
    tokens = sum(row["tokens"] for row in data["rows"])
    return (
        "\nDrafts that are never verified, on copied tool calls and code "
        f"(`bench/divergence.py`, {tokens:,} tokens in all):\n\n"
        "| drafts on | copied | bits a scalar | exact to the end | first wrong token | KL, nats a "
        "token | verified: exact |\n|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
