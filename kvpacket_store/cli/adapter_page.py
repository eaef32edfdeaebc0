"""A training run as a page: the curve, what it was trained on, every look at the held-out KL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from kvpacket_store.cli.page import html_table, page

__all__ = ["adapter_page"]

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 260, 60, 20


def adapter_page(report: dict[str, Any]) -> str:
    """Return the page of a training report."""
    return page("How near packets come to the whole text: an adapter's training", _parts(report))


def _parts(report: dict[str, Any]) -> Iterator[str]:
    yield (
        f"<p>Adapter {report['digest'][:12]} for {escape(report['model'])}: {report['tokens']} "
        f"soft tokens, {report['steps']} steps of {report['options']['batch']} samples in "
        f"{report['seconds'] / 60:.0f} minutes, {report['dtype']}; ended by {report['ended']}. "
        f"The best is that of step {report['best_step']}: on documents held out, it closes "
        f"{report['gap_closed']:.0%} of the gap between packets without soft tokens and the whole "
        "text.</p>"
    )
    yield _curve(report)
    yield "<h2>Trained on</h2>"
    sources = (
        [s["name"], s["documents"], s["questions"], s["digest"][:12]] for s in report["sources"]
    )
    yield html_table(("source", "documents", "questions", "digest"), sources)
    yield "<h2>Every look at what is held out</h2>"
    looks = (
        [look["step"], f"{look['loss']:.4f}", f"{look['kl']:.4f}", f"{look['seconds']:,.0f}"]
        for look in report["history"]
    )
    yield html_table(("step", "loss", "held-out KL", "seconds"), looks)


def _curve(report: dict[str, Any]) -> str:
    """Draw loss and held-out KL by step; a line for packets without soft tokens."""
    history: Sequence[dict[str, float]] = report["history"]
    naive = float(report["kl_naive"])
    most = 1.05 * max(naive, *(max(look["kl"], look["loss"]) for look in history))
    last = max(history[-1]["step"], 1)

    def point(step: float, value: float) -> str:
        x = _LEFT + _WIDTH * step / last
        return f"{x:.1f},{_TOP + _HEIGHT * (1 - value / most):.1f}"

    lines = [
        f'<polyline fill="none" stroke="var(--{colour})" stroke-width="2"{dash} points="'
        f'{" ".join(point(step, value) for step, value in points)}"/>'
        for colour, dash, points in (
            ("theirs", ' stroke-dasharray="4 4"', [(0, naive), (last, naive)]),
            ("theirs", "", [(look["step"], look["loss"]) for look in history]),
            ("ours", "", [(look["step"], look["kl"]) for look in history]),
        )
    ]
    bottom = _TOP + _HEIGHT
    marks = [
        f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        for value in (most * share / 4 for share in range(5))
        for y in (_TOP + _HEIGHT * (1 - value / most),)
    ]
    return (
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + 20} {bottom + 44}" role="img" '
        'aria-label="held-out KL by step">'
        f"{''.join(marks)}{''.join(lines)}"
        f'<text x="{_LEFT}" y="{bottom + 18}">0</text>'
        f'<text x="{_LEFT + _WIDTH}" y="{bottom + 18}" text-anchor="end">step {last}</text>'
        f'<text x="{_LEFT}" y="{bottom + 38}">KL to the whole text, nats a token: held out (thick '
        "blue), loss in training (grey), without soft tokens (dashed)</text></svg>"
    )
