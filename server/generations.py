"""One thread decodes all that is asked, together; a bounded number runs, a bounded number waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kvpacket_store.api import Piece
from kvpacket_store.errors import KVPacketError

from .limits import ServerLimits
from .metrics import Metrics
from .work import Work

if TYPE_CHECKING:
    from kvpacket_store.api import Engine
    from kvpacket_store.api.request import Request

__all__ = ["Generations", "MakeRequest"]

MakeRequest: TypeAlias = "Callable[[], Request]"
"""Gives what the engine is asked; it may refuse with a ``UsageError``."""

_log = logging.getLogger("kvpacket_store.server")


class Generations:
    """Requests to an engine that share passes over the weights. Use it from one event loop.

    Parameters
    ----------
    engine : Engine
        Answers.
    limits : ServerLimits
        How many run and wait, and how much memory those that run may take.
    metrics : Metrics
        Told how each request ended.
    """

    def __init__(self, engine: Engine, limits: ServerLimits, metrics: Metrics) -> None:
        from kvpacket_store.api.running import Running  # brings torch

        self._most = limits.running_generations + limits.waiting_generations
        self._metrics = metrics
        self._running = Running(
            engine,
            limits.running_kv_bytes,
            most=limits.running_generations,
            most_begun_a_step=1,  # those that run get a step between two prompts
        )
        self._requests: dict[Work[Piece], Request] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kvps-generate")

    @property
    def num_running(self) -> int:
        """How many are decoded."""
        return self._running.num_running

    @property
    def num_waiting(self) -> int:
        """How many wait for their turn."""
        return self._running.num_waiting

    @property
    def held_bytes(self) -> int:
        """Bytes of K and V of those that are decoded."""
        return self._running.held_bytes

    def submit(self, make_request: MakeRequest) -> Work[Piece]:
        """Start a request, or let it wait for its turn.

        Raises
        ------
        asyncio.QueueFull
            Too many wait.
        UsageError
            What is asked for cannot be done.
        """
        try:
            return self._submit(make_request)
        except (KVPacketError, asyncio.QueueFull) as error:
            self._metrics.count_failed(error)
            raise

    def cancel(self, work: Work[Piece]) -> None:
        """End a request, waiting or running; nothing happens where it has ended."""
        request = self._requests.pop(work, None)
        if request is not None:
            self._running.cancel(request)

    async def close(self) -> None:
        """Let what runs finish, and cancel what waits."""
        self._running.close()
        await asyncio.to_thread(self._executor.shutdown)

    def _submit(self, make_request: MakeRequest) -> Work[Piece]:
        if self._running.num_unfinished >= self._most:
            raise asyncio.QueueFull(
                f"{self.num_running} generate requests run and {self.num_waiting} wait; "
                "try again later"
            )
        request = make_request()
        work: Work[Piece] = Work(request.cancel)
        self._requests[work] = request
        self._running.add(request, partial(self._give, work))
        self._executor.submit(self._decode)  # which finds nothing to do where the thread is at it
        return work

    def _give(self, work: Work[Piece], given: Piece | Exception) -> None:
        """Hand on what the decoding thread gives; count it first, so that who has it finds it."""
        if isinstance(given, Exception):
            self._metrics.count_failed(given)
            work.end(given)
            return
        if given.answer is not None:
            self._metrics.count_answered(given.answer)
        work.put(given)
        if given.answer is not None:
            work.end()

    def _decode(self) -> None:
        while self._running.num_unfinished:
            try:
                self._running.step()
            except Exception:  # not of a request: those end with their errors
                _log.exception("a step failed")
