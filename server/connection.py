"""Work that ends when the client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from .worker import Produce, Work, WorkerPool

__all__ = ["work_while_connected"]

T = TypeVar("T")


@asynccontextmanager
async def work_while_connected(
    pool: WorkerPool, produce: Produce[T], receive: Receive
) -> AsyncIterator[Work[T]]:
    """Submit work that is cancelled when the client goes away or the block is left.

    The request's body must have been read: ``receive`` then has nothing but the end of the
    connection to tell, and this block is the only one that listens to it.

    Raises
    ------
    asyncio.QueueFull
        The pool is full.
    """
    work = pool.submit(produce)
    watcher = asyncio.create_task(_cancel_at_disconnect(pool, work, receive))
    try:
        yield work
    finally:
        pool.cancel(work)
        watcher.cancel()
        await asyncio.wait([watcher])


async def _cancel_at_disconnect(pool: WorkerPool, work: Work[Any], receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    pool.cancel(work)
