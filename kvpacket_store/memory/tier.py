"""Values in RAM under a cap of bytes; each is loaded by one caller however many ask at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kvpacket_store.types import Report

__all__ = ["MemoryStats", "MemoryTier", "Sized"]


class Sized(Protocol):
    """What the tier holds: read-only from the moment that it is given."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


V = TypeVar("V", bound=Sized)


@dataclass(frozen=True, slots=True)
class MemoryStats(Report):
    """What the tier has done since it was made.

    Parameters
    ----------
    max_bytes, held_bytes, held : int
        The cap, and what is inside now.
    hits, misses : int
        Calls that were served from memory (those that waited for another's load included), and
        calls that had to load.
    evicted : int
        Values that made room for others.
    """

    max_bytes: int
    held_bytes: int
    held: int
    hits: int
    misses: int
    evicted: int

    @property
    def hit_rate(self) -> float | None:
        """Hits among all calls; None before the first."""
        calls = self.hits + self.misses
        return self.hits / calls if calls else None


class MemoryTier(Generic[V]):
    """Least recently used values leave first. Safe for many threads.

    Parameters
    ----------
    max_bytes : int
        Most that the values may take together; what is larger alone is handed on, not kept. With 0
        nothing is kept, and loads are still shared by those who wait for them.

    Examples
    --------
    >>> import numpy as np
    >>> tier = MemoryTier(max_bytes=1000)
    >>> tier.get("a", lambda: np.zeros(100, "uint8"))[1], tier.get("a", lambda: None)[1]
    (False, True)
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._loads: dict[Hashable, _Load[V]] = {}
        self._lock = threading.Lock()
        self._held_bytes = self._hits = self._misses = self._evicted = 0

    def get(self, key: Hashable, load: Callable[[], V]) -> tuple[V, bool]:
        """Return the value, and whether it was in memory.

        One caller runs ``load``; those who ask meanwhile wait for it. What ``load`` raises goes to
        the one who ran it: each of the others then tries for itself.
        """
        while True:
            with self._lock:
                if key in self._values:
                    self._values.move_to_end(key)
                    self._hits += 1
                    return self._values[key], True
                running = self._loads.get(key)
                if running is None:
                    self._misses += 1
                    mine = self._loads[key] = _Load()
                    break
            running.done.wait()
            if running.value is not None:
                with self._lock:
                    self._hits += 1
                return running.value, True
        return self._run(key, mine, load), False

    def forget(self, key: Hashable) -> None:
        """Let one value go; nothing happens where it is not there."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Let everything go."""
        with self._lock:
            self._values.clear()
            self._held_bytes = 0

    def stats(self) -> MemoryStats:
        """Return sizes and counts as of now."""
        with self._lock:
            return MemoryStats(
                self.max_bytes,
                self._held_bytes,
                len(self._values),
                self._hits,
                self._misses,
                self._evicted,
            )

    def _run(self, key: Hashable, mine: _Load[V], load: Callable[[], V]) -> V:
        try:
            mine.value = load()
            with self._lock:
                self._keep(key, mine.value)
            return mine.value
        finally:
            with self._lock:
                del self._loads[key]
            mine.done.set()

    def _keep(self, key: Hashable, value: V) -> None:
        if value.nbytes > self.max_bytes:
            return
        self._values[key] = value
        self._held_bytes += value.nbytes
        while self._held_bytes > self.max_bytes:
            self._drop(next(iter(self._values)))
            self._evicted += 1

    def _drop(self, key: Hashable) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._held_bytes -= value.nbytes


class _Load(Generic[V]):
    """A load under way, and what came of it; None where it failed."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: V | None = None
