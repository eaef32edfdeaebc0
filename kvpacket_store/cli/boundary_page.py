"""The boundary-artifact picture: where rows look, a heat map an arm, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from kvpacket_store.cli.page import html_table, page

__all__ = ["boundary_page", "boundary_svg"]

_CELL_W, _CELL_H, _LEFT, _TOP = 92, 14, 60, 44


def boundary_page(result: dict[str, Any]) -> str:
    """Return the page of what ``bench/boundary.py`` found."""
    return page("Where question and answer look", _parts(result))


def _parts(result: dict[str, Any]) -> Iterator[str]:
    yield (
        f"<p>{escape(str(result['model']))}, adapter {escape(str(result['adapter'] or 'none'))}, "
        f"{result['items']} questions. Share of attention, mean over heads, rows and questions, of "
        "the rows of the question and of full recompute's answer. <i>start</i>: the first four "
        "tokens of every segment.</p>"
    )
    yield html_table(
        ["arm", *result["kinds"], "distance to full"],
        ([name, *arm["mean"], arm["distance"]] for name, arm in result["arms"].items()),
    )
    for name, arm in result["arms"].items():
        yield f"<h2>{escape(name)}</h2>{boundary_svg(name, result['kinds'], arm['mass'])}"


def boundary_svg(name: str, kinds: list[str], mass: list[list[float]]) -> str:
    """Draw layers downwards, kinds side by side; the darker, the more attention.

    Examples
    --------
    >>> boundary_svg("full", ["preamble", "body"], [[0.25, 0.75]]).count("<rect")
    2
    """
    marks = [
        f'<text x="{_LEFT + _CELL_W * (i + 0.5):.0f}" y="34" text-anchor="middle">{escape(kind)}'
        "</text>"
        for i, kind in enumerate(kinds)
    ]
    for layer, shares in enumerate(mass):
        y = _TOP + _CELL_H * layer
        marks.append(f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{layer}</text>')
        for i, share in enumerate(shares):
            x = _LEFT + _CELL_W * i
            marks.append(
                f'<rect x="{x}" y="{y}" width="{_CELL_W - 2}" height="{_CELL_H - 1}" '
                f'fill="var(--ours)" fill-opacity="{min(share, 1.0):.3f}"/>'
                f'<text x="{x + _CELL_W / 2:.0f}" y="{y + 11}" text-anchor="middle" '
                f'font-size="10">{share:.2f}</text>'
            )
    width = _LEFT + _CELL_W * len(kinds) + 8
    return (
        f'<svg viewBox="0 0 {width} {_TOP + _CELL_H * len(mass) + 8}" width="{width}" role="img" '
        f'aria-label="attention by layer and kind of slot, {escape(name)}">'
        f'<text x="{_LEFT}" y="16">layer, and the share of attention on</text>'
        f"{''.join(marks)}</svg>"
    )
