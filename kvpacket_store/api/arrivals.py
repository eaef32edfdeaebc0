"""Requests on their way from any thread to the one that decodes, and back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from kvpacket_store.api.answer import Piece
from kvpacket_store.api.request import Request
from kvpacket_store.errors import CancelledError

__all__ = ["Arrivals", "Give"]

Give: TypeAlias = Callable[[Piece | Exception], None]
"""Called with each piece of an answer, the last one has it whole; or with what ended the request.
It must return soon and raise nothing: others wait for it."""


class Arrivals:
    """A queue of requests; each of them hears of its end once.

    Parameters
    ----------
    on_leave : callable
        Called with a request that leaves the queue without having begun.
    """

    def __init__(self, on_leave: Callable[[Request], None]) -> None:
        self._on_leave = on_leave
        self._changed = threading.Condition()
        self._gives: dict[Request, Give] = {}  # of every request that has not ended
        self._waiting: deque[Request] = deque()
        self._is_closed = False

    @property
    def num_unfinished(self) -> int:
        """How many have come, and not ended."""
        return len(self._gives)

    def add(self, request: Request, give: Give) -> None:
        """Take a request in."""
        with self._changed:
            self._gives[request] = give
            if not self._is_closed:
                self._waiting.append(request)
                self._changed.notify_all()
                return
        self.end(request, CancelledError("nothing new begins here any more"))

    def cancel(self, request: Request) -> None:
        """End a request now, where it waits; else tell the thread that decodes it."""
        request.cancel.set()
        with self._changed:
            if request not in self._waiting:
                return
            self._waiting.remove(request)
        self._leave(request)

    def close(self) -> None:
        """Cancel what waits and what comes."""
        with self._changed:
            self._is_closed = True
            waiting = [*self._waiting]
        for request in waiting:
            self.cancel(request)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a request comes, or for so long; not at all where none waits."""
        with self._changed:
            if self._waiting:
                self._changed.wait(timeout_s)

    def take(self) -> Request | None:
        """Return who is next, out of the queue; None where nobody waits."""
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def put_back(self, request: Request) -> None:
        """Let a request be next again; one that was cancelled meanwhile, or shut out, ends."""
        with self._changed:
            if not (self._is_closed or request.cancel.is_set()):
                self._waiting.appendleft(request)
                return
        self._leave(request)

    def give(self, request: Request, piece: Piece) -> None:
        """Hand on a piece that is not the last."""
        self._gives[request](piece)

    def end(self, request: Request, outcome: Piece | Exception) -> None:
        """Hand on the last piece, or what ended the request."""
        self._gives.pop(request)(outcome)

    def _leave(self, request: Request) -> None:
        self._on_leave(request)
        self.end(request, CancelledError("the request was cancelled before it began"))
