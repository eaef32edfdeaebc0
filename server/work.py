"""What a thread produces, on its way to the event loop."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

__all__ = ["Work"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    """Nothing follows; ``error`` says why where it was not the natural end."""

    error: BaseException | None


class Work(Generic[T]):
    """Items of a thread, arriving on the event loop that this was made on: iterate over it once.

    Items are kept until they are asked for, so that a slow reader does not hold up the thread.

    Parameters
    ----------
    cancelled : threading.Event, optional
        Set where nobody wants the items any more; made here unless given.
    """

    def __init__(self, cancelled: threading.Event | None = None) -> None:
        self.cancelled = threading.Event() if cancelled is None else cancelled
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[T | _End] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self._arrived.get()
        if not isinstance(item, _End):
            return item
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def last(self) -> T:
        """Wait for the end; return the last item, or raise what ended the work."""
        items = [item async for item in self]
        return items[-1]

    def put(self, item: T) -> None:
        """Hand on an item, from any thread."""
        self._loop.call_soon_threadsafe(self._arrived.put_nowait, item)

    def end(self, error: BaseException | None = None) -> None:
        """Say, from any thread, that nothing follows."""
        self._loop.call_soon_threadsafe(self._arrived.put_nowait, _End(error))
