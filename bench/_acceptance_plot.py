"""Accepted length against bits a scalar, as an SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any

COLOURS = {"base": "#2b6cb0", "bits": "#c05621", "tokens": "#718096", "mixed": "#2f855a"}
NAMES = {
    "base": "base of the store: step of K, of V",
    "bits": "quantised",
    "tokens": "tokens dropped",
    "mixed": "both",
}
WIDTH, HEIGHT, LEFT, TOP = 420, 330, 54, 64
LOW, HIGH = 0.5, 16.0


def draw(result: dict[str, Any]) -> str:
    """Return a panel a temperature, a dot a row."""
    rows = [row for row in result["rows"] if _bits(row) and row["mean_accepted"] is not None]
    temperatures = list(dict.fromkeys(row["temperature"] for row in rows))
    most = max((row["mean_accepted"] for row in rows), default=1.0) * 1.08 or 1.0
    width = (WIDTH + LEFT + 20) * max(len(temperatures), 1)
    parts = [_legend()]
    for i, temperature in enumerate(temperatures):
        here = [row for row in rows if row["temperature"] == temperature]
        title = f"T = {temperature:g}" if temperature else "greedy"
        x = i * (WIDTH + LEFT + 20)
        parts.append(f'<g transform="translate({x} 0)">{"".join(_panel(here, title, most))}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 56}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _bits(row: dict[str, Any]) -> float | None:
    bits: float | None = row["draft_bits_per_scalar"]
    return bits


def _legend() -> str:
    spans = "".join(
        f'<tspan fill="{COLOURS[kind]}" dx="10">● {NAMES[kind]}</tspan>' for kind in COLOURS
    )
    return (
        f'<text x="{LEFT}" y="22" font-size="14">Draft tokens accepted a round, of 32</text>'
        f'<text x="{LEFT - 10}" y="42">{spans}</text>'
    )


def _panel(rows: list[dict[str, Any]], title: str, most: float) -> Iterator[str]:
    yield f'<text x="{LEFT + WIDTH - 8}" y="{TOP + 14}" text-anchor="end">{title}</text>'
    for tick in (0.5, 1, 2, 4, 8, 16):
        x = _x(tick)
        yield f'<path d="M{x:.1f} {TOP}V{TOP + HEIGHT}" stroke="#e2e8f0"/>'
        yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'
    step = next(step for step in (0.5, 1, 2, 5, 10) if most / step <= 8)
    for n in range(int(most / step) + 1):
        y = _y(n * step, most)
        yield f'<path d="M{LEFT} {y:.1f}H{LEFT + WIDTH}" stroke="#e2e8f0"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{n * step:g}</text>'
    yield (
        f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">'
        "draft bits a scalar, K and V together</text>"
    )
    for row in rows:
        yield _dot(row, most)


def _dot(row: dict[str, Any], most: float) -> str:
    bits = _bits(row) or HIGH
    x, y = _x(bits), _y(row["mean_accepted"], most)
    name = row["compressor"].removeprefix("base sigma").replace("sigma", "σ")
    if row["kind"] == "base":
        name = "σ" + name
    told = f"{name}: {bits:.2f} bits, {row['mean_accepted']:.1f} accepted"
    label = ""
    if row["kind"] == "base":
        label = f'<text x="{x + 6:.1f}" y="{y - 4:.1f}" font-size="9">{escape(name)}</text>'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[row["kind"]]}">'
        f"<title>{escape(told)}</title></circle>{label}"
    )


def _x(bits: float) -> float:
    share = math.log2(min(max(bits, LOW), HIGH) / LOW) / math.log2(HIGH / LOW)
    return LEFT + WIDTH * share


def _y(accepted: float, most: float) -> float:
    return TOP + HEIGHT * (1 - accepted / most)
