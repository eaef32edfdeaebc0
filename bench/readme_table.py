"""Write the README's measured numbers from ``bench/results``: none of them is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _codec_sections import codec, elsewhere, first_use
from _decode_sections import acceptance, divergence, spread, verified

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- measured: bench/readme_table.py -->\n", "<!-- end of measured -->"


def result(name: str) -> dict[str, Any] | None:
    """Return what a benchmark wrote, or None where it has not run."""
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _line(what: str, ours: str, peer: str, ratio: str, script: str) -> str:
    return f"| {what} | {ours} | {peer} | {ratio} | `bench/{script}.py` |"


def _first_token(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        peer = f"full prefill, Hugging Face {row['full_prefill_dtype']}"
        peer += f" {row['full_prefill_attention']}: {row['full_prefill_ms']:,.0f} ms"
        ratio = f"**{row['ratio']:.1f} ×** ({spread(row['spread'], 1)})"
        what = f"first token, {row['context_tokens']:,} tokens of context"
        yield _line(what, f"{row['packet_ms']:,.0f} ms", peer, ratio, "ttft")


def _answer(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        if row.get("ratio") is None:
            continue
        yield _line(
            f"a whole answer of {row['new_tokens']} tokens over {row['context_tokens']:,}",
            f"{row['answer_ms'] / 1e3:.1f} s",
            f"llama.cpp, same GGUF, same threads: {row['llama_cpp_ms'] / 1e3:.1f} s",
            f"**{row['ratio']:.1f} ×** ({spread(row['spread'], 1)})",
            "answer",
        )


def _decode(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        yield _line(
            f"a token at {row['context_tokens']:,}",
            f"{row['ms_a_token']:.0f} ms",
            f"Hugging Face `generate` {row['hf_dtype']}: {row['hf_ms_a_token']:.0f} ms",
            f"**{row['ratio']:.2f} ×** ({spread(row['spread'], 2)})",
            "decode",
        )


def _ingest(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        yield _line(
            f"ingest of {row['documents']} paragraphs",
            f"{row['ingest_ms'] / 1e3:.1f} s",
            f"the model's own prefill of them: {row['prefill_ms'] / 1e3:.1f} s",
            f"{row['ingest_over_longer']:.2f} of it ({spread(row['spread'], 2)})",
            "ingest",
        )


def _startup(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        yield _line(
            "the second `kvps ask`, process start to answer",
            f"{row['median_s']:.1f} s ({row['min_s']:.1f}–{row['max_s']:.1f})",
            f"bare transformers, load and one token: {row['bare_transformers_s']:.1f} s",
            f"{row['ratio']:.2f} of it",
            "startup",
        )


def _first_use(data: dict[str, Any]) -> Iterator[str]:
    for what, ours, peer in first_use(data):
        yield _line(what, ours, peer, "", "first_use")


def _memory(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        what = f"peak memory, ingest of {row['paragraphs']:,} paragraphs ({row['tokens']:,} tokens)"
        yield _line(what, f"{row['peak_gib']:.2f} GiB", "", "", "memory")


def _store(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        yield _line(row["what"], f"{row['value']:.2f} {row['unit']}", "", "", "store")


def _steady(data: dict[str, Any]) -> Iterator[str]:
    for row in data["rows"]:
        what = f"memory over {row['calls']:,} answers, {row['cancelled']:,} of them cancelled"
        ours = f"{spread(row['second_half_mib'], 1)} MiB in the second half"
        first = f"{spread(row['first_half_mib'], 1)} MiB in the first"
        yield _line(what, ours, first, "", "steady")


TABLES = {
    "ttft": _first_token,
    "answer": _answer,
    "decode": _decode,
    "ingest": _ingest,
    "startup": _startup,
    "first_use": _first_use,
    "memory": _memory,
    "store": _store,
    "steady": _steady,
}


def _head(machine: dict[str, Any]) -> str:
    return f"""{_processor(machine)}, {machine["memory_gib"]:.0f} GiB, torch {machine["torch"]}.
SmolLM2-135M-Instruct, bf16 packets, codec `fast`. Packets are read from LMDB and decoded in every
run; the file cache is warm. Each side runs in the dtype that is fastest on this processor (named).
Medians of pairs run in turn, the range of the ratios in brackets.
Packets of this table and of codecs, levels, accepted lengths and the RAM tier are without an
adapter; those of drafts beside one token a step, copies and answers with the one that shipped when
they were taken. It adds no slot, and some milliseconds a packet until the first token
(docs/quality.md).

| what | ours | peer, same run | ratio | command |
|---|---|---|---|---|
"""


def _machines(found: dict[str, dict[str, Any]]) -> str:
    """Return which rows are from another machine than the one above the table."""
    first = _processor(next(iter(found.values()))["machine"])
    others = {name: _processor(data["machine"]) for name, data in found.items()}
    lines = [
        f"\nRows of `bench/{name}.py` are from another machine: {processor}.\n"
        for name, processor in others.items()
        if processor != first
    ]
    return "".join(lines)


def _processor(machine: dict[str, Any]) -> str:
    return f"{machine['cpu']} ({machine['cpu_capability']}), {machine['cores']} cores"


def _quality(data: dict[str, Any]) -> str:
    lines = [
        f"| {arm} | {row['kl']:.2f} | {row['gold_nll']:.2f} | {row['f1']:.2f} |"
        for arm, row in data["arms"].items()
    ]
    count = data["arms"]["full"]["n"]
    sets = ", ".join(block["name"] for block in data["datasets"])
    adapter = f"adapter `{data['adapter']}`"
    if data["adapter"] is None:
        adapter = "without an adapter, so `packet` is naive reuse"
    return (
        f"\nAnswers to {count} questions of {sets} (`bench/quality.py`,\n"
        f"docs/quality.md); {adapter}:\n\n"
        "| arm | KL to full, nats a token | gold answer, nats a token | F1 |\n|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def _memory_tier(data: dict[str, Any]) -> str:
    lines = [
        f"| {row['holds']} | {row['cap_share_of_raw_corpus']:.0%} | "
        f"{'' if row['hit_rate'] is None else format(row['hit_rate'], '.0%')} | "
        f"{row['mean_ms']:.2f} ms |"
        for row in data["rows"]
    ]
    return (
        f"\nWhat the RAM tier should hold, {data['requests']:,} requests under a Zipf law "
        "(`bench/memory_tier.py`):\n\n"
        "| holds | cap, of the corpus's raw K,V | hits | a packet |\n|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def _codec(data: dict[str, Any]) -> str:
    others = (result(name) for name in ("codec_paragraphs", "codec_gemma3-270m"))
    wide = result("codec_avx512")
    tables = [codec(one) for one in (data, wide) if one is not None]
    return "".join(tables) + elsewhere([other for other in others if other is not None])


def _levels(data: dict[str, Any]) -> str:
    lines = [
        f"| {row['codec']}, {row['layers']} layer{'s' * (row['layers'] > 1)} | "
        f"{row['stored_bytes'] / 1e6:.1f} MB | {row['first_token']:,.0f} ms "
        f"({spread(row['spread'], 0)}) |"
        for row in data["rows"]
    ]
    return (
        f"\nThe same {data['tokens']:,} tokens at each level (`bench/levels.py`), packets read "
        "from disk\nand decoded:\n\n"
        "| level | stored | first token |\n|---|---|---|\n" + "\n".join(lines) + "\n"
    )


SECTIONS = {
    "codec": _codec,
    "levels": _levels,
    "verified": verified,
    "acceptance": acceptance,
    "divergence": divergence,
    "quality": _quality,
    "memory_tier": _memory_tier,
}


def main() -> None:
    """Replace the section between the two marks."""
    found = {name: data for name in TABLES if (data := result(name)) is not None}
    machine = next(iter(found.values()))["machine"]
    rows = [line for name, data in found.items() for line in TABLES[name](data)]
    text = _head(machine) + "\n".join(rows) + "\n" + _machines(found)
    for name, section in SECTIONS.items():
        if (data := result(name)) is not None:
            text += section(data)
    readme = README.read_text()
    before, rest = readme.split(BEGIN)
    README.write_text(before + BEGIN + text + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
