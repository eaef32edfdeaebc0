"""Blocking work beside the event loop: a bounded number runs, a bounded number waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from kvpacket_store import errors
from kvpacket_store.api.fair_queue import FairQueue

from .refusals import ShuttingDownError
from .request_record import NOBODY, key_name
from .work import Work

__all__ = ["Job", "Produce", "WorkerPool"]

T = TypeVar("T")

Produce: TypeAlias = Callable[[threading.Event], Iterable[T]]
"""Runs in a worker's thread. It raises ``CancelledError`` soon after the event is set."""


class Job(Work[T]):
    """Work that a worker's thread runs."""

    def __init__(self, produce: Produce[T]) -> None:
        super().__init__()
        self.owner = key_name()
        self._produce = produce

    def run(self) -> None:
        """Produce everything, in the calling thread."""
        if self.cancelled.is_set():
            raise errors.CancelledError("the request was cancelled before it began")
        for item in self._produce(self.cancelled):
            self.put(item)


class WorkerPool:
    """Threads for one kind of work; keys have turns. Use it from one event loop.

    Parameters
    ----------
    name : str
        What the work is called in messages and thread names.
    running, waiting : int
        Most that run at once, and most that wait.
    waiting_of_key : int, optional
        Most that wait of one key's.
    """

    def __init__(
        self, name: str, *, running: int, waiting: int, waiting_of_key: int | None = None
    ) -> None:
        self._name = name
        self._most_running, self._most_waiting = running, waiting
        self._most_waiting_of_key = waiting if waiting_of_key is None else waiting_of_key
        self._executor = ThreadPoolExecutor(running, thread_name_prefix=f"kvps-{name}")
        self._running: set[Job[Any]] = set()
        self._waiting: FairQueue[Job[Any]] = FairQueue()
        self._is_draining = False

    @property
    def num_waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def submit(self, produce: Produce[T]) -> Job[T]:
        """Start the work, or let it wait for its turn.

        Raises
        ------
        asyncio.QueueFull
            Too many wait, or too many of this key's.
        ShuttingDownError
            Nothing new begins.
        """
        if self._is_draining:
            raise ShuttingDownError
        work = Job(produce)
        if len(self._running) < self._most_running:
            self._start(work)
        else:
            self._require_room(work.owner)
            self._waiting.append(work)
        return work

    def cancel(self, work: Job[Any]) -> None:
        """Take waiting work out of the queue; tell running work to stop."""
        work.cancelled.set()
        if self._waiting.remove(work):
            work.end(errors.CancelledError("the request was cancelled before it began"))

    def drain(self) -> None:
        """Begin nothing any more: who waits is told to come back later."""
        self._is_draining = True
        while (work := self._waiting.take()) is not None:
            work.end(ShuttingDownError())

    async def close(self) -> None:
        """Drain, and let running work finish."""
        self.drain()
        await asyncio.to_thread(self._executor.shutdown)

    def _require_room(self, owner: str) -> None:
        if len(self._waiting) >= self._most_waiting:
            raise asyncio.QueueFull(
                f"{len(self._running)} {self._name} requests run and {len(self._waiting)} wait; "
                "try again later"
            )
        own = self._waiting.num_of(owner)
        if owner != NOBODY and own >= self._most_waiting_of_key:
            raise asyncio.QueueFull(
                f"{own} {self._name} requests of this key wait; try again when some are done"
            )

    def _start(self, work: Job[Any]) -> None:
        self._running.add(work)
        finished = asyncio.get_running_loop().run_in_executor(self._executor, work.run)
        finished.add_done_callback(lambda future: self._finish(work, future.exception()))

    def _finish(self, work: Job[Any], error: BaseException | None) -> None:
        self._running.remove(work)
        if (waiting := self._waiting.take()) is not None:
            self._start(waiting)
        work.end(error)
