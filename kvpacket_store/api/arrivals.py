"""Requests on their way from any thread to the one that decodes, and back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from kvpacket_store.api.answer import Piece
from kvpacket_store.api.fair_queue import FairQueue
from kvpacket_store.api.request import Request
from kvpacket_store.errors import CancelledError

__all__ = ["Arrivals", "Give"]

Give: TypeAlias = Callable[[Piece | Exception], None]
"""Called with each piece of an answer, the last one has it whole; or with what ended the request.
It must return soon and raise nothing: others wait for it."""


class Arrivals:
    """Requests that wait, fair between their owners; each request hears of its end once.

    Parameters
    ----------
    on_leave : callable
        Called with a request that leaves the queue without having begun.
    """

    def __init__(self, on_leave: Callable[[Request], None]) -> None:
        self._on_leave = on_leave
        self._changed = threading.Condition()
        self._gives: dict[Request, Give] = {}  # of every request that has not ended
        self._owners: Counter[str] = Counter()  # of the same
        self._waiting: FairQueue[Request] = FairQueue()
        self._is_closed = False

    @property
    def num_unfinished(self) -> int:
        """How many have come, and not ended."""
        return len(self._gives)

    def num_unfinished_of(self, owner: str) -> int:
        """How many of an owner's have come, and not ended."""
        return self._owners[owner]

    def add(self, request: Request, give: Give) -> None:
        """Take a request in."""
        with self._changed:
            self._gives[request] = give
            self._owners[request.owner] += 1
            if not self._is_closed:
                self._waiting.append(request)
                self._changed.notify_all()
                return
        self.end(request, CancelledError("nothing new begins here any more"))

    def cancel(self, request: Request) -> None:
        """End a request now, where it waits; else tell the thread that decodes it."""
        request.cancel.set()
        with self._changed:
            if not self._waiting.remove(request):
                return
        self._leave(request)

    def close(self) -> None:
        """Cancel what waits and what comes."""
        with self._changed:
            self._is_closed = True
            waiting = self._waiting.items()
        for request in waiting:
            self.cancel(request)

    def cancel_all(self) -> None:
        """Cancel everything that has come, and not ended."""
        with self._changed:
            unfinished = [*self._gives]
        for request in unfinished:
            self.cancel(request)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a request comes, or for so long; not at all where none waits."""
        with self._changed:
            if self._waiting:
                self._changed.wait(timeout_s)

    def take(self) -> Request | None:
        """Return who is next, out of the queue; None where nobody waits."""
        with self._changed:
            return self._waiting.take()

    def put_back(self, request: Request) -> None:
        """Let a request be next again; one that was cancelled meanwhile, or shut out, ends."""
        with self._changed:
            if not (self._is_closed or request.cancel.is_set()):
                self._waiting.put_back(request)
                return
        self._leave(request)

    def give(self, request: Request, piece: Piece) -> None:
        """Hand on a piece that is not the last."""
        self._gives[request](piece)

    def end(self, request: Request, outcome: Piece | Exception) -> None:
        """Hand on the last piece, or what ended the request."""
        with self._changed:
            give = self._gives.pop(request)
            self._owners[request.owner] -= 1
            if not self._owners[request.owner]:
                del self._owners[request.owner]
        give(outcome)

    def _leave(self, request: Request) -> None:
        self._on_leave(request)
        self.end(request, CancelledError("the request was cancelled before it began"))
