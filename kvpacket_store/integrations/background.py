"""An iterator that runs on a thread, read from an event loop that never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kvpacket_store.errors import CancelledError

__all__ = ["in_background", "stopped_after"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    """Nothing more comes; or an error did."""

    error: BaseException | None = None


async def in_background(
    run: Callable[[threading.Event], Iterator[T]], cancel: threading.Event | None = None
) -> AsyncGenerator[T, None]:
    """Yield what ``run`` yields on a thread of its own.

    Leaving early, or a cancelled task, sets the event that ``run`` was given; this returns when
    the thread has ended.

    Parameters
    ----------
    run : callable
        Given the event, gives an iterator that ends soon after it is set.
    cancel : threading.Event, optional
        The event; else a new one.
    """
    loop = asyncio.get_running_loop()
    given: asyncio.Queue[T | _End] = asyncio.Queue()
    cancel = cancel or threading.Event()

    def work() -> None:
        end = _End()
        try:
            for item in run(cancel):
                loop.call_soon_threadsafe(given.put_nowait, item)
        except BaseException as error:
            end = _End(error)
        loop.call_soon_threadsafe(given.put_nowait, end)

    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        while not isinstance(item := await given.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        cancel.set()
        await asyncio.shield(thread)


def stopped_after(
    timeout_s: float | None,
    run: Callable[[threading.Event], Iterator[T]],
    cancel: threading.Event,
) -> Iterator[T]:
    """Yield what ``run`` yields, and set its event after so many seconds.

    Raises
    ------
    TimeoutError
        The event was set for that, before the iterator had ended.
    """
    if timeout_s is None:
        yield from run(cancel)
        return
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        cancel.set()

    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield from run(cancel)
    except CancelledError as error:
        if not is_late.is_set():
            raise
        raise TimeoutError(
            f"no whole answer within {timeout_s} s; allow more time, or ask for fewer tokens"
        ) from error
    finally:
        timer.cancel()
