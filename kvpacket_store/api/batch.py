"""Many requests at once, in one pass over the weights, under a limit of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.answer import Answer, Piece
from kvpacket_store.api.request import Request, new_request
from kvpacket_store.api.running import Running
from kvpacket_store.errors import KVPacketError, UsageError

if TYPE_CHECKING:
    from kvpacket_store.api.engine import Engine

__all__ = ["Batch"]


class Batch:
    """Decodes a list of requests together, as many as fit.

    Parameters
    ----------
    engine : Engine
        Whose store and model.
    memory_bytes : int, optional
        Most that the K and V of running requests may take; others wait. See `Admission`.
    """

    def __init__(self, engine: Engine, memory_bytes: int | None = None) -> None:
        self._running = Running(engine, memory_bytes)

    @property
    def largest(self) -> int:
        """Most requests that ran at once."""
        return self._running.largest

    def run(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer | KVPacketError]:
        """Answer all; in the place of a request that failed stands its error.

        Parameters
        ----------
        requests : sequence of mapping
            ``question`` and what else `Engine.generate` takes, each.
        """
        results: dict[int, Answer | Exception] = {}
        for index, asked in enumerate(requests):
            try:
                self._running.add(_arrived(index, asked), partial(_keep, results, index))
            except KVPacketError as error:
                results[index] = error
        try:
            while self._running.num_unfinished:
                self._running.step()
        finally:
            self._running.abandon()
        return [_foreseen(results[index]) for index in range(len(requests))]


def _keep(results: dict[int, Answer | Exception], index: int, given: Piece | Exception) -> None:
    if isinstance(given, Exception):
        results[index] = given
    elif given.answer is not None:
        results[index] = given.answer


def _foreseen(result: Answer | Exception) -> Answer | KVPacketError:
    """Return a result; raise what is nobody's request's fault."""
    if isinstance(result, Answer | KVPacketError):
        return result
    raise result


def _arrived(index: int, asked: Mapping[str, Any]) -> Request:
    """Check a request at the door."""
    found: object = asked  # whatever the caller handed over
    if not isinstance(found, Mapping) or not isinstance(found.get("question"), str):
        raise UsageError(f"request {index} is {asked!r}; it is a mapping with a question")
    return new_request(**asked)
