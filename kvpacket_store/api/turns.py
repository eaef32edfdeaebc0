"""Whose exact K and V are in memory: one request's, and the next in order of asking."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Turns"]


class Turns:
    """A turn is held by one; others queue by asking, and ask again until they get it.

    Without a queue, whoever gives the turn back could take it at once again, for ever.

    Examples
    --------
    >>> turns = Turns()
    >>> turns.take("a"), turns.take("b"), turns.take("c")
    (True, False, False)
    >>> turns.leave("a")
    >>> turns.take("a"), turns.take("c"), turns.take("b")
    (False, False, True)
    """

    def __init__(self) -> None:
        self._holder: object | None = None
        self._queue: deque[object] = deque()
        self._lock = threading.Lock()

    def take(self, asker: object, *, is_first: bool = False) -> bool:
        """Say whether it is the asker's turn; if not, it is in the queue now, or at its head."""
        with self._lock:
            if self._holder is asker:
                return True
            if asker not in self._queue:
                (self._queue.appendleft if is_first else self._queue.append)(asker)
            if self._holder is not None or self._queue[0] is not asker:
                return False
            self._holder = self._queue.popleft()
            return True

    def leave(self, asker: object) -> None:
        """Give the turn back, or leave the queue; nothing where there is neither."""
        with self._lock:
            if self._holder is asker:
                self._holder = None
            if asker in self._queue:
                self._queue.remove(asker)
