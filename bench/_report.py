"""Print a table and keep the numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def report(name: str, result: dict[str, Any]) -> None:
    """Write ``bench/results/NAME.json`` and show its rows."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    rows = result["rows"]
    show(name, {key: key for key, value in rows[0].items() if not isinstance(value, dict)}, rows)


def show(title: str, columns: Mapping[str, str], rows: Sequence[dict[str, Any]]) -> None:
    """Print some fields of rows, each under its heading."""
    table = Table(title=title, box=None)
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list):
        return "–".join(_cell(part) for part in value)
    return "" if value is None else str(value)
