"""One thread decodes all that is asked, together; a bounded number runs, a bounded number waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kvpacket_store.api import Piece
from kvpacket_store.errors import KVPacketError

from .generation import Generation, require_within_limits
from .limits import ServerLimits
from .logs import log_fault
from .metrics import Metrics
from .refusals import ShuttingDownError
from .request_record import NOBODY, key_name
from .work import Work

if TYPE_CHECKING:
    from kvpacket_store.api import Engine
    from kvpacket_store.api.request import Request

__all__ = ["Generations", "MakeRequest"]

MakeRequest: TypeAlias = "Callable[[], Request]"
"""Gives what the engine is asked; it may refuse with a ``UsageError``."""


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

        self._limits = limits
        self._metrics = metrics
        self._running = Running(
            engine,
            limits.running_kv_bytes,
            most=limits.running_generations,
            most_begun_a_step=1,  # those that run get a step between two prompts
        )
        self._generations: dict[Work[Piece], Generation] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kvps-generate")
        self._is_draining = False

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
            Too many wait, or too many of this key's.
        UsageError
            What is asked for cannot be done, or is beyond the limits.
        ShuttingDownError
            Nothing new begins.
        """
        try:
            return self._submit(make_request)
        except (KVPacketError, asyncio.QueueFull) as error:
            self._metrics.count_failed(error)
            raise

    def cancel(self, work: Work[Piece]) -> None:
        """End a request, waiting or running; nothing happens where it has ended."""
        generation = self._generations.pop(work, None)
        if generation is not None:
            generation.forget()
            self._running.cancel(generation.request)

    def drain(self) -> None:
        """Begin nothing any more: who waits, and who still runs after the limit, is told why."""
        if self._is_draining:
            return
        self._is_draining = True
        for generation in self._generations.values():
            generation.end_because(ShuttingDownError)
        self._running.close()
        asyncio.get_running_loop().call_later(self._limits.shutdown_s, self._running.cancel_all)

    async def close(self) -> None:
        """Drain, and wait for the end of what runs."""
        self.drain()
        await asyncio.to_thread(self._executor.shutdown)

    def _submit(self, make_request: MakeRequest) -> Work[Piece]:
        owner = key_name()
        self._require_room(owner)
        request = make_request()
        require_within_limits(request, self._limits)
        request.owner = owner
        generation = Generation(request)
        self._generations[generation.work] = generation
        self._running.add(request, partial(self._give, generation))
        self._executor.submit(self._decode)  # which finds nothing to do where the thread is at it
        generation.limit_time(
            self._limits.request_timeout_s, partial(self._running.cancel, request)
        )
        return generation.work

    def _require_room(self, owner: str) -> None:
        if self._is_draining:
            raise ShuttingDownError
        most_running, running = self._limits.running_generations, self._running
        if running.num_unfinished >= most_running + self._limits.waiting_generations:
            raise asyncio.QueueFull(
                f"{self.num_running} generate requests run and {self.num_waiting} wait; "
                "try again later"
            )
        own = running.num_unfinished_of(owner)
        if owner != NOBODY and own >= most_running + self._limits.waiting_generations_of_key:
            raise asyncio.QueueFull(
                f"{own} generate requests of this key run or wait; try again when some are answered"
            )

    def _give(self, generation: Generation, given: Piece | Exception) -> None:
        """Hand on what the decoding thread gives; count it first, so that who has it finds it."""
        if isinstance(given, Exception):
            error = generation.told(given)
            self._metrics.count_failed(error)
            generation.work.end(error)
            return
        if given.answer is not None:
            self._metrics.count_answered(given.answer)
        generation.give(given)

    def _decode(self) -> None:
        while self._running.num_unfinished:
            try:
                self._running.step()
            except Exception as error:  # not of a request: those end with their errors
                log_fault("a step failed", error)
