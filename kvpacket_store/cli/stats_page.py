"""``kvps stats`` as a page: sizes, and bits per scalar by layer as a heat map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kvpacket_store.cli.page import cell, html_table, page

__all__ = ["heat_map", "stats_page"]

_SIDES = {"k": "K", "v": "V", "k_base": "K, base", "v_base": "V, base"}
# From few bits to many: pale to deep blue. A cell brings its own ink, so that it reads on any page.
_PALE, _DEEP = (222, 235, 247), (8, 48, 107)
_CELL, _ROW, _LEFT, _TOP = 84, 20, 64, 30


def stats_page(store: str, report: Mapping[str, Any]) -> str:
    """Return the page of a ``StatsReport``'s dictionary."""
    return page(f"Sizes of {store}", _parts(report))


def heat_map(layers: Sequence[Mapping[str, float | int | None]]) -> str:
    """Draw bits a scalar of K and V, a row a layer; bases have a scale of their own.

    Examples
    --------
    >>> drawn = heat_map([{"layer": 0, "k": 10.0, "v": 9.5, "k_base": None, "v_base": None}])
    >>> drawn.count("<rect"), "K, base" in drawn
    (2, False)
    """
    sides = [side for side in _SIDES if layers[0][side] is not None]
    marks = [
        f'<text x="{_LEFT + _CELL * i + _CELL // 2}" y="20" text-anchor="middle">'
        f"{_SIDES[side]}</text>"
        for i, side in enumerate(sides)
    ]
    scales = {side: _scale(layers, side, sides) for side in sides}
    for row, layer in enumerate(layers):
        y = _TOP + _ROW * row
        marks.append(
            f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">layer {layer["layer"]}</text>'
        )
        for column, side in enumerate(sides):
            marks.append(_cell(_LEFT + _CELL * column, y, float(layer[side] or 0), scales[side]))
    width, height = _LEFT + _CELL * len(sides) + 8, _TOP + _ROW * len(layers) + 8
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="bits a scalar by layer">{"".join(marks)}</svg>'
    )


def _scale(
    layers: Sequence[Mapping[str, float | int | None]], side: str, sides: Sequence[str]
) -> tuple[float, float]:
    """Return least and most bits of K and V together, of bases or of all."""
    alike = [other for other in sides if other.endswith("_base") == side.endswith("_base")]
    found = [float(layer[other] or 0) for layer in layers for other in alike]
    return min(found), max(found)


def _cell(x: int, y: int, bits: float, scale: tuple[float, float]) -> str:
    low, high = scale
    share = (bits - low) / (high - low) if high > low else 0.0
    red, green, blue = (
        round(pale + share * (deep - pale)) for pale, deep in zip(_PALE, _DEEP, strict=True)
    )
    ink = "#ffffff" if share > 0.5 else "#1f2933"
    return (
        f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_ROW - 2}" '
        f'fill="rgb({red},{green},{blue})"/>'
        f'<text x="{x + _CELL // 2 - 1}" y="{y + 13}" text-anchor="middle" style="fill:{ink}">'
        f"{bits:.2f}</text>"
    )


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    apart = ("bits_per_scalar", "layers", "namespaces")
    yield html_table(
        ["what", "value"],
        [[key.replace("_", " "), value] for key, value in report.items() if key not in apart],
    )
    yield "<h2>Bits a scalar</h2>"
    yield html_table(
        ["of", "bits"], [[_SIDES.get(k, k), v] for k, v in report["bits_per_scalar"].items()]
    )
    if not report["layers"]:
        yield "<p>No packet is stored, so there is nothing to show by layer.</p>"
        return
    yield "<h2>By layer</h2>"
    count = report["sampled_packets"]
    yield (
        f"<p>K and V as stored, over {escape(cell(count))} packet{'s' if count > 1 else ''}; "
        "the deeper, the more bits. Bases have a scale of their own.</p>"
    )
    yield heat_map(report["layers"])
