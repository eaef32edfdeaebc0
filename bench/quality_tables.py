"""Write the tables of docs/quality.md from bench/results/quality*.json and its neighbours.

Each table stands between two comments, ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``; where a
result is not there, the table stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "quality.md"


def table(heads: list[str], rows: list[list[object]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(table(["a", "b"], [[1, 2]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    texts = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return "\n".join([texts[0], "|" + "---|" * len(heads), *texts[2:]])


def about(data: dict[str, Any]) -> str:
    """Say what was measured, and that without an adapter packets are naive reuse."""
    machine = data["machine"]
    adapter = f"adapter `{data['adapter']}`"
    if data["adapter"] is None:
        adapter = "no adapter, so `packet` is naive reuse"
    return f"{data['model']}, {adapter}; {machine['cpu']}, {machine['threads']} thread(s).\n\n"


def with_interval(value: float, interval: list[float] | None) -> str:
    """Return a figure with its 95 % interval."""
    return f"{value:.2f}" + ("" if interval is None else f" ({interval[0]:.2f}–{interval[1]:.2f})")


def closed(block: dict[str, Any], arm: str, metric: str) -> str:
    """Return the share of a gap that an arm closes."""
    found = (block["gap_closed"].get(arm) or {}).get(metric)
    if found is None or arm == "none":
        return ""
    low_high = found["interval"]
    spread = "" if low_high is None else f" ({low_high[0]:.0%} to {low_high[1]:.0%})"
    return f"{found['share']:.0%}{spread}"


def arms_rows(block: dict[str, Any]) -> Iterator[list[object]]:
    """Yield a row an arm."""
    for name, f in block["arms"].items():
        yield [
            name,
            with_interval(f["kl"], f["kl_interval"]),
            closed(block, name, "kl"),
            with_interval(f["gold_nll"], f["gold_nll_interval"]),
            closed(block, name, "gold_nll"),
            f"{f['f1']:.2f}",
            f"{f['micro_f1']:.2f}",
            f"{f['em']:.2f}",
            f"{f['format_failures']['any']:.0%}",
            f"{f['ttft_ms']:,.0f}",
            f"{f['flops'] / 1e9:.1f}",
            f"{f['recomputed_tokens']:.0f}",
        ]


ARM_HEADS = [
    "arm",
    "KL",
    "gap closed",
    "gold answer",
    "gap closed",
    "F1",
    "micro-F1",
    "exact",
    "faults",
    "first token, ms",
    "GFLOP",
    "run again",
]


def all_arms(data: dict[str, Any]) -> str:
    """Return every arm over all data sets."""
    doubts = "".join(f"\n- {doubt}" for doubt in data["doubts"])
    told = f"\n\nDoubtful:\n{doubts}" if doubts else ""
    count = data["arms"]["full"]["n"]
    return about(data) + f"{count} questions:\n\n" + table(ARM_HEADS, list(arms_rows(data))) + told


def domains(data: dict[str, Any]) -> str:
    """Return KL and F1 by data set."""
    names = list(data["arms"])
    rows: list[list[object]] = []
    for block in data["datasets"]:
        if block["arms"] is not None:
            kl = " / ".join(f"{block['arms'][n]['kl']:.2f}" for n in names if n != "full")
            f1 = " / ".join(f"{block['arms'][n]['f1']:.2f}" for n in names)
            name = block["name"] + (" (doubtful)" if block["doubts"] else "")
            context = f"{block['arms']['full']['context_tokens']:,.0f}"
            rows.append([name, block["domain"], block["n"], context, kl, f1])
    heads = ["set", "domain", "questions", "context tokens"]
    rest = [n for n in names if n != "full"]
    heads += [f"KL: {' / '.join(rest)}", f"F1: {' / '.join(names)}"]
    return about(data) + table(heads, rows)


def sweep(varied: str, head: str) -> Callable[[dict[str, Any]], str]:
    """Return what writes a table of one value that is varied."""

    def write(data: dict[str, Any]) -> str:
        rows: list[list[object]] = []
        places = dict.fromkeys((row["set"], row[varied]) for row in data["rows"])
        names = list(dict.fromkeys(row["arm"] for row in data["rows"]))
        for place in places:
            found = {r["arm"]: r for r in data["rows"] if (r["set"], r[varied]) == place}
            kl = [f"{found[name]['kl']:.2f}" for name in names if name != "full"]
            f1 = " / ".join(f"{found[name]['f1']:.2f}" for name in names)
            context = f"{found['full']['context_tokens']:,.0f}"
            rows.append([*place, context, *kl, f1])
        kls = [f"KL {name}" for name in names if name != "full"]
        heads = ["set", head, "context tokens", *kls, f"F1: {' / '.join(names)}"]
        told = f"{data['questions']} questions of each.\n\n"
        return about(data) + told + table(heads, rows)

    return write


def compression(data: dict[str, Any]) -> str:
    """Return KL and F1 by method, on packets and on a joint cache."""
    found = {(r["cache"], r["method"], r["removed"]): r for r in data["rows"]}
    methods = list(dict.fromkeys(r["method"] for r in data["rows"]))
    shares = sorted({r["removed"] for r in data["rows"]} - {0.0})
    rows: list[list[object]] = []
    for method in methods:
        columns = [0.0] if (data["rows"][0]["cache"], method, 0.0) in found else shares
        cells: list[object] = [method.replace("sigma", "σ")]
        for cache in ("packets", "joint"):
            for figure in ("kl", "f1"):
                values = (found[cache, method, share][figure] for share in columns)
                cells.append(" / ".join(f"{value:.2f}" for value in values))
        rows.append(cells)
    heads = ["removed: " + " / ".join(f"{share:.0%}" for share in shares)]
    heads += ["packets: KL", "packets: F1", "joint: KL", "joint: F1"]
    told = f"{data['rows'][0]['n']} questions of {', '.join(data['sets'])}.\n\n"
    return about(data) + told + table(heads, rows)


def boundary(data: dict[str, Any]) -> str:
    """Return where question and answer look, mean over layers."""
    rows = [
        [name, *(f"{share:.3f}" for share in arm["mean"]), f"{arm['distance']:.3f}"]
        for name, arm in data["arms"].items()
    ]
    return about(data) + table(["arm", *data["kinds"], "distance to full"], rows)


SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "arms": ("quality", all_arms),
    "domains": ("quality", domains),
    "packets": ("quality_packets", sweep("packets", "packets")),
    "lengths": ("quality_lengths", sweep("document_tokens", "tokens a packet, about")),
    "compression": ("compression_quality", compression),
    "boundary": ("boundary", boundary),
}


def main() -> None:
    """Replace what stands between the marks."""
    text = PAGE.read_text()
    for name, (file, write) in SECTIONS.items():
        path = HERE / "results" / f"{file}.json"
        if path.is_file():
            made = write(json.loads(path.read_text()))
            begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
            pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
            text = pattern.sub(lambda _, made=made, b=begin, e=end: f"{b}\n{made}\n{e}", text)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
