"""Stores and engines that survive pickling: another process opens them when it first needs them."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from kvpacket_store.api import Engine, Store

__all__ = ["EngineHandle", "StoreHandle"]


class StoreHandle:
    """A store, or the path of one that is opened when it is asked for.

    In the process that pickled it, it comes back as the same store.
    """

    _open: ClassVar[WeakValueDictionary[tuple[int, str], Store]] = WeakValueDictionary()
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: Store | str) -> None:
        self._store = None if isinstance(store, str) else store
        self._path = store if isinstance(store, str) else str(store.path.resolve())
        if self._store is not None:
            self._open[os.getpid(), self._path] = self._store

    def get(self) -> Store:
        """Return the store, open.

        Raises
        ------
        NotFoundError, ModelError
            As `Store.open`.
        """
        with self._opening:
            if self._store is None:
                here = (os.getpid(), self._path)
                self._store = self._open.get(here) or Store.open(self._path)
                self._open[here] = self._store
            return self._store

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreHandle, (self._path,)


class EngineHandle:
    """An engine, or what makes it anew over its store; see `StoreHandle`."""

    _open: ClassVar[WeakValueDictionary[tuple[int, str, str, int], Engine]] = WeakValueDictionary()
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: StoreHandle, system_prompt: str, memory_bytes: int) -> None:
        self.store = store
        self._system_prompt, self._memory_bytes = system_prompt, memory_bytes
        self._engine: Engine | None = None

    @classmethod
    def of(cls, engine: Engine | EngineHandle) -> EngineHandle:
        """Return a handle on an engine; a handle stays itself."""
        if isinstance(engine, EngineHandle):
            return engine
        store = StoreHandle(engine.store)
        handle = cls(store, engine.system_prompt, engine.memory.max_bytes)
        handle._engine = engine
        cls._open[handle._key] = engine
        return handle

    def get(self) -> Engine:
        """Return the engine, made now if it has to be."""
        with self._opening:
            if self._engine is None:
                found = self._open.get(self._key)
                self._engine = found or Engine(
                    self.store.get(),
                    system_prompt=self._system_prompt,
                    memory_bytes=self._memory_bytes,
                )
                self._open[self._key] = self._engine
            return self._engine

    @property
    def _key(self) -> tuple[int, str, str, int]:
        path = self.store.__reduce__()[1][0]
        return os.getpid(), path, self._system_prompt, self._memory_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineHandle, (self.store, self._system_prompt, self._memory_bytes)
