"""The open database of a folder: one handle a process, its locks, forks and snapshots."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from kvpacket_store.errors import StoreError, UsageError
from kvpacket_store.store.database import (
    Access,
    access_to,
    default_map_bytes,
    open_database,
    open_tables,
    require_whole_file,
)
from kvpacket_store.store.failures import as_store_error
from kvpacket_store.store.gate import Gate
from kvpacket_store.store.locks import FolderLocks
from kvpacket_store.store.readers import Snapshot, open_snapshots
from kvpacket_store.store.schema import Table

__all__ = ["OpenDatabase"]

_FORK_PATIENCE_S = 10.0
_PAUSE_S = 0.01

_INHERITED: list[Any] = []
"""A parent's handles, kept for ever: closing one here would free the parent's reader slots."""


class OpenDatabase:
    """LMDB's handle of one store folder in this process, opened when it is needed.

    Parameters
    ----------
    path : Path
        The folder; ``data.mdb`` is there, unless ``create`` is true.
    map_bytes : int or None
        Address space to reserve at first; it grows as needed. None: twice the disk.
    create : bool
        Make the folder's files and tables.
    read_only : bool or None
        None: where the files cannot be written.

    Raises
    ------
    StoreError, StoreLockedError, StoreCorruptError
        As `as_store_error` says.
    """

    def __init__(
        self,
        path: Path,
        map_bytes: int | None = None,
        *,
        create: bool = False,
        read_only: bool | None = None,
    ) -> None:
        self.path = path
        self.num_users = 0
        self._access = Access.WRITE if create else access_to(path, read_only)
        self._locks = FolderLocks(path, is_lockless=self._access is Access.READ_WITHOUT_LOCKS)
        self._map_bytes = map_bytes or default_map_bytes(path)
        self._gate = Gate()
        self._opening = threading.Lock()
        self._is_closed = False
        self._is_quiet = False
        self._pid = os.getpid()
        self._lmdb: Any = None
        self._tables: dict[Table, Any] = {}
        self._page_bytes = 0
        with self._translated():
            self._open_lmdb(create)

    @property
    def is_read_only(self) -> bool:
        """Whether LMDB was opened for reading alone."""
        return self._access is not Access.WRITE

    def snapshots(self) -> list[Snapshot]:
        """Return the read transactions that are open now, in all processes."""
        with self._translated(), self._gate.shared():
            return open_snapshots(self._handle())

    def await_readers(self, patience_s: float) -> Snapshot | None:
        """Wait until no snapshot is older than the last commit; return one that stays."""
        deadline_s = time.monotonic() + patience_s
        while True:
            with self._translated(), self._gate.shared():
                self._handle().reader_check()
            oldest = max(self.snapshots(), key=lambda found: found.txns_behind, default=None)
            if oldest is None or not oldest.txns_behind:
                return None
            if time.monotonic() > deadline_s:
                return oldest
            time.sleep(_PAUSE_S)

    @contextmanager
    def alone(self) -> Iterator[Any]:
        """Give LMDB's handle while no other process has the store open, and nothing runs in this.

        Whatever becomes of the file meanwhile, the next transaction opens it anew.
        """
        with self._translated(), self._gate.alone():
            self._close_lmdb()
            self._locks.hold_alone()
            try:
                yield self._handle()
            finally:
                self._close_lmdb()
                self._locks.release()

    def close_file(self) -> None:
        """Within `alone`: close LMDB, so that the file may be replaced."""
        self._close_lmdb()

    def close(self) -> None:
        """Wait for running transactions, then close."""
        with self._gate.alone():
            self._is_closed = True
            self._close_lmdb()
            self._locks.release()

    # --- fork: no LMDB state of the parent may live on in a child

    def prepare_fork(self) -> None:
        """Close the database for the moment of the fork; both sides open it again when needed."""
        self._is_quiet = self._gate.enter_alone(timeout_s=_FORK_PATIENCE_S)
        if self._is_quiet:
            self._close_lmdb()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._is_quiet:
            self._gate.leave_alone()

    def after_fork_in_child(self) -> None:
        """Go on with locks of our own: the parent's may be held by threads that are not here."""
        self._gate = Gate()
        self._opening = threading.Lock()
        self._locks.forget()
        if self._is_quiet:
            self._pid = os.getpid()

    # --- the handle

    def _handle(self) -> Any:
        """Return the database handle of this process, opened if need be."""
        with self._opening:
            if self._is_closed:
                raise UsageError(f"store {self.path} is closed; open it again")
            if self._pid != os.getpid():
                raise StoreError(
                    f"store {self.path} was in use by another thread when this process was forked; "
                    "start processes with 'spawn', or open the store after the fork"
                )
            if self._lmdb is None:
                self._open_lmdb(create=False)
            return self._lmdb

    def _open_lmdb(self, create: bool) -> None:
        self._locks.hold()
        try:
            self._lmdb = open_database(self.path, self._map_bytes, create, self._access)
            require_whole_file(self._lmdb, self.path)
            self._tables = open_tables(self._lmdb, create, self._access)
            self._page_bytes = self._lmdb.stat()["psize"]
        except BaseException:
            self._close_lmdb()
            self._locks.release()
            raise

    def _close_lmdb(self) -> None:
        handle, self._lmdb, self._tables = self._lmdb, None, {}
        if handle is None:
            return
        if self._pid == os.getpid():
            handle.close()
        else:
            _INHERITED.append(handle)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.Error, OSError) as error:
            raise as_store_error(error, self.path) from error
