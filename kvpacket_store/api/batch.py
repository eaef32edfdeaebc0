"""Many requests at once, in one pass over the weights, under a limit of memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.answer import Answer, Timings
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.request import checked_options, finished_answer
from kvpacket_store.api.selection import Query
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.api.text_answer import TextAnswer
from kvpacket_store.api.turns import Turns
from kvpacket_store.errors import KVPacketError, UsageError
from kvpacket_store.generate import Failed, Final, Finished, GenerationOptions, Together

if TYPE_CHECKING:
    from kvpacket_store.api.engine import Engine

__all__ = ["Batch"]


@dataclass(slots=True)
class _Request:
    """One request from its arrival to its answer."""

    index: int
    query: Query
    options: GenerationOptions
    timings: Timings
    clock: float
    cancel: threading.Event | None = None
    begun: Begun | None = None
    text: TextAnswer | None = None

    def elapsed_ms(self) -> float:
        return 1e3 * (time.perf_counter() - self.clock)


class Batch:
    """Decodes requests together, as many as fit.

    Parameters
    ----------
    engine : Engine
        Whose store and model.
    memory_bytes : int, optional
        Most that the K and V of running requests may take. Requests wait for room, but one always
        runs. Requests that draft on the base then hold their drafts alone; their exact K and V
        come for a verification, one request's at a time, and are dropped after it.

    Attributes
    ----------
    largest : int
        Most requests that ran at once.
    """

    def __init__(self, engine: Engine, memory_bytes: int | None = None) -> None:
        self.largest = 0
        self._engine = engine
        self._memory_bytes = memory_bytes
        self._turns = Turns()
        if memory_bytes is not None and memory_bytes < 0:
            raise UsageError(f"memory_bytes is {memory_bytes}; it is 0 or more")
        base = engine.decoder.policy
        limited = memory_bytes is not None
        self._policy = SwapPolicy(
            keep=not limited,
            streams_layers=False,  # a shared forward must not wait inside a layer
            link=base.link,
            turns=self._turns if limited else None,
        )
        self._running: dict[int, _Request] = {}
        self._results: dict[int, Answer | KVPacketError] = {}

    def run(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer | KVPacketError]:
        """Answer all; in the place of a request that failed stands its error.

        Parameters
        ----------
        requests : sequence of mapping
            ``question`` and what else `Engine.generate` takes, each.
        """
        waiting = deque(self._arrivals(requests))
        together = Together(self._engine.store.model.row_forward())
        try:
            while waiting or self._running:
                while waiting and self._begin(waiting[0], together):
                    waiting.popleft()
                self.largest = max(self.largest, len(self._running))
                for index, event in together.step():
                    if index in self._running:  # a stop string ends a request amid its tokens
                        self._take(index, event, together)
        finally:
            for request in self._running.values():
                if request.begun is not None and request.begun.swap is not None:
                    request.begun.swap.abandon()
        return [self._results[index] for index in range(len(requests))]

    def _arrivals(self, requests: Sequence[Mapping[str, Any]]) -> Iterator[_Request]:
        for index, asked in enumerate(requests):
            try:
                yield _arrived(index, asked)
            except KVPacketError as error:
                self._results[index] = error

    def _begin(self, request: _Request, together: Together) -> bool:
        """Start a request if it fits; say whether it is out of the queue."""
        index = request.index
        if not self._turns.take(request, is_first=True):  # the more run, the more share a pass
            return False  # a prompt as large as exact K and V is in memory while one begins
        try:
            if not self._fits(request):
                return False
            request.begun = self._engine.begin(
                request.query,
                request.options,
                request.timings,
                request.cancel,
                policy=self._policy,
            )
        except KVPacketError as error:
            self._results[index] = error
            return True
        finally:
            self._turns.leave(request)
        request.text = TextAnswer(self._engine.store.model.tokenizer, request.options.stop)
        self._running[index] = request
        together.join(index, request.begun.decoding)
        return True

    def _fits(self, request: _Request) -> bool:
        """Whether a request's K and V have room beside those that run; one always has.

        Beside drafts there must be room for one request's exact K and V.
        """
        if self._memory_bytes is None or not self._running:
            return True
        held = [running.begun for running in self._running.values() if running.begun]
        needed = self._engine.prompt_bytes(request.query, request.options)
        swapped = any(begun.swap for begun in held)
        largest = max([needed, *(begun.exact_bytes for begun in held)]) if swapped else needed
        return sum(begun.resident_bytes for begun in held) + largest <= self._memory_bytes

    def _take(self, index: int, event: object, together: Together) -> None:
        """Take in what a request gave."""
        request = self._running[index]
        if isinstance(event, Final) and request.text is not None:
            request.timings.first_token = request.timings.first_token or request.elapsed_ms()
            request.text.push(event.token_id)
            if request.text.stopped:
                together.leave(index)
                self._finish(index)
        elif isinstance(event, Finished):
            self._finish(index)
        elif isinstance(event, Failed):
            self._finish(index, event.error)

    def _finish(self, index: int, error: KVPacketError | None = None) -> None:
        request = self._running.pop(index)
        begun, text = request.begun, request.text
        assert begun is not None and text is not None  # noqa: S101, PT018 - it ran
        if begun.swap is not None:
            begun.swap.abandon()  # not `drop`, which would wait for what is on its way
        request.timings.total = request.elapsed_ms()
        text.finish()
        self._results[index] = error or finished_answer(begun, text, request.timings)


def _arrived(index: int, asked: Mapping[str, Any]) -> _Request:
    """Check a request at the door."""
    found: object = asked  # whatever the caller handed over
    if not isinstance(found, Mapping) or not isinstance(found.get("question"), str):
        raise UsageError(f"request {index} is {asked!r}; it is a mapping with a question")
    options = dict(asked)
    defaults = {"documents": None, "top_k": None, "where": None, "namespace": "default"}
    named = {name: options.pop(name, value) for name, value in defaults.items()}
    query = Query(options.pop("question"), **named)
    cancel = options.pop("cancel", None)
    chosen = checked_options(options)
    return _Request(index, query, chosen, Timings(), time.perf_counter(), cancel)
