"""Who may begin: requests whose K and V have room beside those that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvpacket_store.api.begun import Begun
from kvpacket_store.api.prompts import Needs
from kvpacket_store.api.request import Request
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.api.turns import Turns
from kvpacket_store.errors import UsageError
from kvpacket_store.models import cancellable

if TYPE_CHECKING:
    from kvpacket_store.api.engine import Engine

__all__ = ["Admission"]


class Admission:
    """Begins requests that are decoded together, under a limit of memory.

    Parameters
    ----------
    engine : Engine
        Begins them.
    memory_bytes : int, optional
        Most that the K and V of running requests may take; one always runs. Requests that draft on
        the base then hold their drafts alone; their exact K and V come for a verification, one
        request's at a time, and are dropped after it.

    Raises
    ------
    UsageError
        The limit is negative.
    """

    def __init__(self, engine: Engine, memory_bytes: int | None) -> None:
        if memory_bytes is not None and memory_bytes < 0:
            raise UsageError(f"memory_bytes is {memory_bytes}; it is 0 or more")
        self._engine = engine
        self._memory_bytes = memory_bytes
        self._turns = Turns()
        self._measured: tuple[Request, Needs] | None = None  # who asked last, and what it needs
        limited = memory_bytes is not None
        self._policy = SwapPolicy(
            keep=not limited,
            streams_layers=False,  # a shared forward must not wait inside a layer
            link=engine.decoder.policy.link,
            turns=self._turns if limited else None,
        )

    def begin(self, request: Request, running: Sequence[Begun]) -> Begun | None:
        """Begin a request; None where it has no room now: ask again, or `leave`."""
        if not self._turns.take(request, is_first=True):  # the more run, the more share a pass
            return None  # a prompt as large as exact K and V is in memory while one begins
        try:
            if not self._fits(request, running):
                return None
            with cancellable(request.cancel):
                return self._engine.begin(
                    request.query, request.options, request.timings, request.cancel, self._policy
                )
        finally:
            self.leave(request)

    def leave(self, request: Request) -> None:
        """Let others begin: this request asks no more."""
        self._turns.leave(request)

    def _fits(self, request: Request, running: Sequence[Begun]) -> bool:
        """Whether a request's K and V have room beside those that run; one always has.

        Beside drafts there must be room for one request's exact K and V.
        """
        if self._memory_bytes is None or not running:
            return True
        needs = self._needs(request)
        own = needs.draft_bytes + (0 if needs.is_swapped else needs.exact_bytes)
        swapped = [begun.exact_bytes for begun in running if begun.swap]
        if needs.is_swapped:
            swapped.append(needs.exact_bytes)
        held = sum(begun.resident_bytes for begun in running)
        return held + own + max(swapped, default=0) <= self._memory_bytes

    def _needs(self, request: Request) -> Needs:
        """Return what a request takes; looked up once, not at every step."""
        if self._measured is None or self._measured[0] is not request:
            self._measured = (request, self._engine.needs(request.query, request.options))
        return self._measured[1]
