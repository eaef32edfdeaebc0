"""Many transactions, or one change of the memory map, never both.

LMDB moves its map when it grows. A transaction of the same process that is open at that moment
would read through a pointer into nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Gate"]


class Gate:
    """A readers-writer lock that lets the one who waits to be alone go first.

    Examples
    --------
    >>> gate = Gate()
    >>> with gate.shared():
    ...     gate.enter_alone(timeout_s=0)
    False
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_closing = False

    def enter(self) -> None:
        """Come in beside others; wait while someone is, or wants to be, alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closing)
            self._num_inside += 1

    def leave(self) -> None:
        """Go out again."""
        with self._changed:
            self._num_inside -= 1
            self._changed.notify_all()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Be inside, beside others."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter_alone(self, timeout_s: float | None = None) -> bool:
        """Wait until nobody else is inside; say whether that came true in time."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_closing, timeout_s):
                return False
            self._is_closing = True
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if self._changed.wait_for(lambda: self._num_inside == 0, left_s):
                return True
            self._is_closing = False
            self._changed.notify_all()
            return False

    def leave_alone(self) -> None:
        """Let the others in again."""
        with self._changed:
            self._is_closing = False
            self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside, with nobody else."""
        self.enter_alone()
        try:
            yield
        finally:
            self.leave_alone()
