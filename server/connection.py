"""Work that ends when the client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

from kvpacket_store.api import Piece

from .generations import Generations, MakeRequest
from .work import Work

__all__ = ["generate_while_connected"]


@asynccontextmanager
async def generate_while_connected(
    generations: Generations, make_request: MakeRequest, receive: Receive
) -> AsyncIterator[Work[Piece]]:
    """Submit a request that is cancelled when the client goes away or the block is left.

    The request's body must have been read: ``receive`` then has nothing but the end of the
    connection to tell, and this block is the only one that listens to it.

    Raises
    ------
    asyncio.QueueFull
        Too many wait.
    UsageError
        What is asked for cannot be done.
    """
    work = generations.submit(make_request)
    watcher = asyncio.create_task(_cancel_at_disconnect(generations, work, receive))
    try:
        yield work
    finally:
        generations.cancel(work)
        watcher.cancel()
        await asyncio.wait([watcher])


async def _cancel_at_disconnect(
    generations: Generations, work: Work[Piece], receive: Receive
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    generations.cancel(work)
