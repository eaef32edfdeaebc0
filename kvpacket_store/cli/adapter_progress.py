"""How training goes: a bar on a terminal, elsewhere a line for each look at the held-out KL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from kvpacket_store.cli.output import err

if TYPE_CHECKING:
    from kvpacket_store.training import Progress as TrainingProgress

__all__ = ["time_left", "training_bar"]


def time_left(seconds: float | None) -> str:
    """Return a time as people read it.

    Examples
    --------
    >>> time_left(None), time_left(42.4), time_left(3720)
    ('', '42 s left', '62 min left')
    """
    if seconds is None:
        return ""
    return f"{seconds:.0f} s left" if seconds < 120 else f"{seconds / 60:.0f} min left"


@contextmanager
def training_bar() -> Iterator[Callable[[TrainingProgress], None]]:
    """Yield what takes the progress of a training run and shows it on stderr."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("baseline", total=1.0, figures="")
        said = -1

        def watch(progress: TrainingProgress) -> None:
            nonlocal said
            figures = _figures(progress)
            description = f"{progress.stage} step {progress.step}"
            bar.update(task, completed=progress.share, description=description, figures=figures)
            is_news = progress.stage == "train" and progress.step != said
            if not err.is_terminal and progress.loss is not None and is_news:
                said = progress.step
                err.print(f"step {progress.step}: {figures}")

        yield watch


def _figures(progress: TrainingProgress) -> str:
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.kl is not None:
        parts.append(f"held-out KL {progress.kl:.3f}")
    left = time_left(progress.seconds_left)
    return ", ".join([*parts, left] if left else parts)
