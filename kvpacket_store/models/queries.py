"""The queries of a prompt's last rows, as attention gets them: what token droppers judge by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["observe_query", "observing_queries"]

_observed: ContextVar[tuple[int, list[torch.Tensor]] | None] = ContextVar("observed", default=None)


@contextmanager
def observing_queries(most_rows: int) -> Iterator[list[torch.Tensor]]:
    """Collect the rotated queries ``[Hq, Q, D]`` of each layer of the forwards in this block.

    Parameters
    ----------
    most_rows : int
        Only the last rows of a forward, so many at most.

    Examples
    --------
    >>> with observing_queries(2) as queries:
    ...     observe_query(torch.zeros(1, 3, 5, 4))
    >>> queries[0].shape
    torch.Size([3, 2, 4])
    """
    queries: list[torch.Tensor] = []
    before = _observed.set((most_rows, queries))
    try:
        yield queries
    finally:
        _observed.reset(before)


def observe_query(query: torch.Tensor) -> None:
    """Take note of one layer's queries ``[1, Hq, Q, D]``, where somebody wants them."""
    wanted = _observed.get()
    if wanted is not None:
        most_rows, queries = wanted
        queries.append(query[0, :, -most_rows:].clone())
