"""A bar for work whose end is known, with the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kvpacket_store.cli.output import err

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show a bar on a terminal, else nothing; yield what takes the stage and the share done."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)

        def update(stage: str, share: float) -> None:
            description = f"{what} {stage}".strip()
            if description != bar.tasks[0].description:
                bar.reset(task)  # the time that is left is the stage's
            bar.update(task, completed=share, description=description)

        yield update
