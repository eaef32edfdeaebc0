"""A quality report for people: tables on the terminal, and a page with bars."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from kvpacket_store.cli.output import err, out, plain, table
from kvpacket_store.cli.page import cell, html_table, page

__all__ = ["quality_page", "tell_quality"]

_COLUMNS = {
    "kl": "KL",
    "gold_nll": "gold nats",
    "f1": "F1",
    "em": "exact",
    "ttft_ms": "ms",
    "recomputed_tokens": "run again",
}
_BAR, _ROW = 420, 24


def tell_quality(report: dict[str, Any]) -> None:
    """Print a table a data set, then one over all."""
    for block in report["datasets"]:
        if block["arms"] is not None:
            title = f"{block['name']}, {block['domain']}, {block['n']} questions"
            out.print(table(title, ["arm", *_COLUMNS.values(), "gap closed"], _rows(block)))
    out.print(table("all", ["arm", *_COLUMNS.values(), "gap closed"], _rows(report)))
    for doubt in report["doubts"]:
        err.print(plain(f"doubtful: {doubt}"))


def quality_page(report: dict[str, Any]) -> str:
    """Return the page of what `measure_quality` found."""
    return page("How near answers from packets are to full recompute", _parts(report))


def _rows(block: dict[str, Any]) -> list[list[object]]:
    rows = []
    for name, figures in block["arms"].items():
        closed = (block["gap_closed"].get(name) or {}).get("kl")
        share = "" if closed is None or name == "none" else f"{closed['share']:.0%}"
        rows.append([name, *(figures[column] for column in _COLUMNS), share])
    return rows


def _parts(report: dict[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield (
        f"<p>{escape(str(report['model']))}, adapter {escape(str(report['adapter'] or 'none'))}. "
        f"{escape(str(machine['cpu']))}, {machine['cores']} cores. Every arm answered the same "
        "questions; the 95 % intervals are of a bootstrap over questions. Without an adapter "
        "<i>packet</i> is naive reuse.</p>"
    )
    for doubt in report["doubts"]:
        yield f"<p><b>Doubtful:</b> {escape(doubt)}</p>"
    for block in [{"name": "all", **report}, *report["datasets"]]:
        if block["arms"] is not None:
            yield from _section(block)
    for one in report["skipped"]:
        yield f"<p>{escape(one['name'])} is left out: {escape(one['reason'])}</p>"


def _section(block: dict[str, Any]) -> Iterator[str]:
    about = ""
    if "domain" in block:
        about = f", {block['domain']} ({block['source']}; {block['licence']})"
    yield f"<h2>{escape(block['name'] + about)}</h2>"
    yield _bars(block["arms"])
    yield html_table(["arm", *_COLUMNS.values(), "gap closed"], _rows(block))


def _bars(arms: dict[str, Any]) -> str:
    """Draw the KL of each arm with its interval."""
    rows = [(name, figures) for name, figures in arms.items() if name != "full"]
    most = max(_upper(figures) for _, figures in rows) or 1.0
    marks = []
    for i, (name, figures) in enumerate(rows):
        y = 30 + _ROW * i
        fill = "var(--ours)" if name == "packet" else "var(--theirs)"
        width = max(1.0, _BAR * figures["kl"] / most)
        marks.append(
            f'<text x="100" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="108" y="{y}" width="{width:.1f}" height="16" fill="{fill}"/>'
            f'<text x="{116 + _BAR * _upper(figures) / most:.1f}" y="{y + 12}">'
            f"{cell(float(figures['kl']))}</text>"
        )
        if figures["kl_interval"] is not None:
            low, high = (108 + _BAR * end / most for end in figures["kl_interval"])
            marks.append(
                f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8}" y2="{y + 8}" '
                'stroke="var(--ink)" stroke-width="1.5"/>'
            )
    height = 40 + _ROW * len(rows)
    return (
        f'<svg viewBox="0 0 620 {height}" role="img" aria-label="KL to full recompute by arm">'
        '<text x="108" y="18">KL to full recompute, nats a token (smaller is better)</text>'
        f"{''.join(marks)}</svg>"
    )


def _upper(figures: dict[str, Any]) -> float:
    interval = figures["kl_interval"]
    return float(figures["kl"] if interval is None else max(interval[1], figures["kl"]))
