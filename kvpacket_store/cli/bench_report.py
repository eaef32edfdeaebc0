"""Where a benchmark's result goes: a file, stdout, a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvpacket_store.cli.output import out, print_json, table
from kvpacket_store.cli.page import write_text

__all__ = ["keep", "report"]


def report(result: dict[str, Any], out_file: Path | None, as_json: bool) -> None:
    """Keep a result; show its rows where stdout is not JSON."""
    if keep(result, out_file, as_json):
        return
    rows = result["rows"]
    plain = [key for key, value in rows[0].items() if not isinstance(value, dict)]
    out.print(table("", plain, [[row[key] for key in plain] for row in rows]))


def keep(result: dict[str, Any], out_file: Path | None, as_json: bool) -> bool:
    """Write the JSON where it is asked for; say whether that was to stdout."""
    if out_file is not None:
        write_text(out_file, json.dumps(result, indent=1) + "\n")
    if as_json:
        print_json(result)
    return as_json
