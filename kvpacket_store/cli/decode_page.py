"""``kvps bench decode`` as a page: bars of tokens a second, and every row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from kvpacket_store.cli.page import cell, html_table, page

__all__ = ["decode_page", "place_of"]

_COLUMNS = {
    "compressor": "compressor",
    "decode": "decoding",
    "mean_accepted": "accepted a round",
    "draft_bits_per_scalar": "draft, bits a scalar",
    "draft_tokens_kept_share": "tokens kept",
    "tokens_per_s": "tokens/s",
    "ratio": "over one by one",
    "repetition": "repetition",
    "identical": "identical",
    "tokens_compared": "of tokens",
    "guarded": "guarded",
}
_BAR, _ROW = 480, 24


def decode_page(result: dict[str, Any]) -> str:
    """Return the page of what ``measure_decode`` found."""
    return page("How fast: verified decoding, one token a step, Hugging Face", _parts(result))


def place_of(row: dict[str, Any]) -> str:
    """Return where a row was measured.

    Examples
    --------
    >>> place_of({"context_tokens": 2012, "batch": 8, "temperature": 0.0, "exactness": "bit"})
    '2,012 tokens of context, 8 requests together, greedy, bit'
    """
    batch = "1 request" if row["batch"] == 1 else f"{row['batch']} requests together"
    chosen = f"T = {row['temperature']:g}" if row["temperature"] else "greedy"
    return f"{row['context_tokens']:,} tokens of context, {batch}, {chosen}, {row['exactness']}"


def _parts(result: dict[str, Any]) -> Iterator[str]:
    machine, plan, rows = result["machine"], result["plan"], result["rows"]
    compared = sum(row["tokens_compared"] for row in rows)
    equal = "all" if all(row["identical"] for row in rows) else "not all"
    yield (
        f"<p>{escape(str(machine['cpu']))}, {machine['cores']} cores, {machine['threads']} "
        f"threads, {machine['memory_gib']} GiB. Store of level {result['codec']} in "
        f"{result['layers']} layer{'s' if result['layers'] > 1 else ''}. Answers of "
        f"{plan['new_tokens']} tokens; all "
        f"ways to decode took turns, {plan['runs']} times; medians. What comes before a first "
        f"token is left out. Of {compared:,} tokens compared, {equal} were those of one token a "
        "step. Repetition is the share of 4-grams that occurred before in the same answer.</p>"
    )
    for place, group in itertools.groupby(rows, place_of):
        found = list(group)
        yield f"<h2>{escape(place)}</h2>"
        yield _bars(found)
        yield html_table(list(_COLUMNS.values()), ([row[key] for key in _COLUMNS] for row in found))
        if found[0]["hf_left_out"]:
            yield f"<p>Hugging Face left out: {escape(found[0]['hf_left_out'])}.</p>"


def _bars(rows: Sequence[dict[str, Any]]) -> str:
    """Draw tokens a second of the peers, then of every compressor."""
    first = rows[0]
    bars = [("one token a step", first["full_tokens_per_s"], "var(--theirs)")]
    if first["hf_tokens_per_s"] is not None:
        bars.insert(0, ("Hugging Face", first["hf_tokens_per_s"], "var(--theirs)"))
    bars += [(row["compressor"], row["tokens_per_s"], "var(--ours)") for row in rows]
    most = max(speed for _, speed, _ in bars)
    marks = []
    for i, (name, speed, fill) in enumerate(bars):
        y, width = 28 + _ROW * i, _BAR * speed / most
        marks.append(
            f'<text x="190" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="198" y="{y}" width="{max(2.0, width):.1f}" height="16" fill="{fill}"/>'
            f'<text x="{204 + width:.1f}" y="{y + 12}">{cell(float(speed))}</text>'
        )
    return (
        f'<svg viewBox="0 0 760 {36 + _ROW * len(bars)}" role="img" aria-label="tokens a second">'
        f'<text x="198" y="16">tokens a second</text>{"".join(marks)}</svg>'
    )
