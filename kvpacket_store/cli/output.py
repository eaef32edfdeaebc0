"""What commands say: JSON to stdout, tables and progress to people."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["JSON_OPTION", "NAMESPACE_OPTION", "err", "fail", "out", "print_json", "table"]

JSON_OPTION = typer.Option("--json", help="One JSON object on stdout, nothing else.")
NAMESPACE_OPTION = typer.Option("--namespace", help="Whose documents.")

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def fail(message: str, exit_code: int) -> int:
    """Say what went wrong on stderr; return the exit code."""
    err.print(f"kvps: {message}", style="red" if err.is_terminal else "", markup=False)
    return exit_code


def table(title: str, columns: list[str], rows: list[list[object]]) -> Table:
    """Return a plain table; numbers to the right."""
    made = Table(title=title or None, box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], int | float)
        made.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        made.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    return made
