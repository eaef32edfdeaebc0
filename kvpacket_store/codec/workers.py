"""The codec's small thread pool: numpy, zstandard and xxhash let go of the GIL on whole chunks."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["for_each", "limited_to"]

_Item = TypeVar("_Item")
_MIN_PARALLEL_BYTES = 1 << 18  # below that, waking a thread costs more than it saves
_MAX_THREADS = 8  # beyond that memory, not cores, is the limit
_limit: list[int] = []


def for_each(task: Callable[[_Item], None], items: Iterable[_Item], *, num_bytes: int) -> None:
    """Run ``task`` on every item, here and on the pool's threads; return when nothing runs.

    ``num_bytes`` is what all items together work on: little of it is done here alone.

    The first error stops what has not begun, and is raised once everything stands still: buffers
    that the tasks write to are then the caller's again.
    """
    pending = deque(items)

    def drain() -> None:
        while True:
            try:
                item = pending.popleft()
            except IndexError:
                return
            try:
                task(item)
            except BaseException:
                pending.clear()
                raise

    threads = _num_threads() - 1 if num_bytes >= _MIN_PARALLEL_BYTES else 0
    others = [_pool(os.getpid()).submit(drain) for _ in range(threads)]
    try:
        drain()
    finally:
        started = [other for other in others if not other.cancel()]
        wait(started)
    for other in started:
        other.result()


@contextmanager
def limited_to(threads: int) -> Iterator[None]:
    """Let the codec have that many threads of this process, at most: for measuring.

    Examples
    --------
    >>> with limited_to(1):
    ...     _num_threads()
    1
    """
    _limit.append(threads)
    try:
        yield
    finally:
        _limit.pop()


def _num_threads() -> int:
    return min(os.cpu_count() or 1, _MAX_THREADS, *_limit)


@functools.cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """Return this process's pool; keyed by process because threads do not survive a fork."""
    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    return ThreadPoolExecutor(max(threads - 1, 1), thread_name_prefix=f"kvp-codec-{pid}")
