"""Run every benchmark in turn, each in a process of its own; then the README's plot and table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = (
    "startup",
    "first_use",
    "codec",
    "levels",
    "ttft",
    "decode",
    "verified",
    "acceptance",
    "answer",
    "ingest",
    "quality",
    "compression_quality",
    "boundary",
    "store",
    "memory_tier",
    "memory",
    "steady",
)


def plot() -> None:
    """Draw time to first token against context as an SVG, without a plotting library."""
    rows = json.loads((HERE / "results" / "ttft.json").read_text())["rows"]
    top = max(row["full_prefill_ms"] for row in rows)
    bars = []
    for i, row in enumerate(rows):
        y = 44 + 46 * i
        for j, (key, colour) in enumerate(
            (("full_prefill_ms", "#9aa5b1"), ("packet_ms", "#2b6cb0"))
        ):
            width = max(2.0, 430 * row[key] / top)
            bars.append(
                f'<rect x="110" y="{y + 17 * j}" width="{width:.1f}" height="14" fill="{colour}"/>'
                f'<text x="{116 + width:.1f}" y="{y + 17 * j + 11}">{row[key]:,.0f} ms</text>'
            )
        label = f"{row['context_tokens']:,} tokens"
        bars.append(f'<text x="100" y="{y + 20}" text-anchor="end">{label}</text>')
        bars.append(f'<text x="640" y="{y + 20}" font-weight="bold">{row["ratio"]:.1f} ×</text>')
    height = 54 + 46 * len(rows)
    (HERE / "results" / "ttft.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        '<rect width="100%" height="100%" fill="white"/>'
        '<text x="110" y="24" font-size="14">Time to first token: '
        '<tspan fill="#697785">full prefill</tspan>, '
        '<tspan fill="#2b6cb0">packets from disk</tspan>'
        f"</text>{''.join(bars)}</svg>\n"
    )


def main() -> int:
    """Return the number of scripts that failed."""
    failed = 0
    for name in SCRIPTS:
        failed += bool(
            subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode
        )
    plot()
    for script in ("readme_table", "quality_tables"):
        subprocess.run([sys.executable, str(HERE / f"{script}.py")], check=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
