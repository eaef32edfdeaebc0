"""Reading and decoding the next packets on other cores while one is placed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

from kvpacket_store.errors import KVPacketError

__all__ = ["ReadAhead"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_MAX_THREADS = 4  # beyond that memory, not cores, is the limit


class ReadAhead(Generic[_Key, _Value]):
    """Calls ``read`` on keys in order, a few ahead of the one that is wanted.

    What cannot be read is given as None: the caller reads it again itself, and meets the error.

    Parameters
    ----------
    read : callable
        Key → value, on any thread; a `KVPacketError` means None.
    keys : sequence
        In the order in which they will be taken.

    Examples
    --------
    >>> with ReadAhead(str.upper, ["a", "b"]) as ahead:
    ...     ahead.take(), ahead.take()
    ('A', 'B')
    """

    def __init__(self, read: Callable[[_Key], _Value], keys: Sequence[_Key]) -> None:
        self._read = read
        self._waiting = deque(keys)
        self._running: deque[Future[_Value | None]] = deque()
        self._threads = min(os.cpu_count() or 1, _MAX_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="kvp-read")

    def __enter__(self) -> ReadAhead[_Key, _Value]:
        for _ in range(self._threads):
            self._start_one()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self) -> _Value | None:
        """Return the next value, waiting for it; None where it cannot be read or none is left."""
        self._start_one()
        return self._running.popleft().result() if self._running else None

    def _start_one(self) -> None:
        if self._waiting:
            self._running.append(self._pool.submit(self._try, self._waiting.popleft()))

    def _try(self, key: _Key) -> _Value | None:
        try:
            return self._read(key)
        except KVPacketError:
            return None
