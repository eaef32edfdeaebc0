"""``kvps doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from kvpacket_store.cli.output import JSON_OPTION, out, print_json

__all__ = ["doctor"]


def doctor(
    store: Annotated[str | None, typer.Argument(help="A store to look at as well.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Say what is wrong here, and what to change."""
    from kvpacket_store.api.doctor import examine

    checks = examine(store)
    if as_json:
        print_json({"checks": [check.to_dict() for check in checks]})
    else:
        for check in checks:
            mark = {"error": "✗", "warning": "!"}.get(check.level, "·") if not check.ok else "✓"
            out.print(f"{mark} {check.name}: {check.detail}", markup=False)
            if check.remedy:
                out.print(f"    {check.remedy}", markup=False)
    if worst := max((check.exit_code for check in checks if not check.ok), default=0):
        raise typer.Exit(worst)
