"""What commands say: JSON to stdout, tables and progress to people."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["JSON_OPTION", "NAMESPACE_OPTION", "err", "fail", "out", "plain", "print_json", "table"]

JSON_OPTION = typer.Option("--json", help="One JSON object on stdout, nothing else.")
NAMESPACE_OPTION = typer.Option("--namespace", help="Whose documents.")

out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

# Everything that would move the cursor or change colours, newline and tab apart.
_CONTROL = {c: None for c in (*range(32), *range(127, 160)) if chr(c) not in "\n\t"}


def plain(text: str) -> Text:
    """Return a document's or an answer's text as it is: no markup, nothing for the terminal."""
    return Text(text.translate(_CONTROL))


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object."""
    sys.stdout.write(json.dumps(value) + "\n")  # ASCII: any terminal or pipe can carry it


def fail(message: str, exit_code: int) -> int:
    """Say what went wrong on stderr; return the exit code."""
    err.print(plain(f"kvps: {message}"), style="red" if err.is_terminal else "")
    return exit_code


def table(title: str, columns: list[str], rows: list[list[object]]) -> Table:
    """Return a plain table; numbers to the right."""
    made = Table(title=title or None, box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], int | float)
        made.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row)
        made.add_row(*map(plain, cells))
    return made
