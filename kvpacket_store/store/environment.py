"""One LMDB environment: transactions, growth of its map, survival of forks and full disks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from kvpacket_store.errors import StoreCorruptError, StoreError, StoreFullError, UsageError
from kvpacket_store.store.database import default_map_bytes, open_database, open_tables
from kvpacket_store.store.failures import as_store_error
from kvpacket_store.store.gate import Gate
from kvpacket_store.store.schema import Table
from kvpacket_store.store.transaction import Transaction

__all__ = ["Environment"]

T = TypeVar("T")

_MAX_MAP_BYTES = 1 << 46
_RESERVE_SHARE = 16
_MAX_RESERVE_BYTES = 1 << 20
_FORK_PATIENCE_S = 10.0

_INHERITED: list[Any] = []
"""A parent's handles, kept for ever: closing one here would free the parent's reader slots."""


class Environment:
    """The open database of one store folder in this process (see ``registry.py``).

    Parameters
    ----------
    path : Path
        The folder; ``data.mdb`` is there, unless ``create`` is true.
    map_bytes : int or None
        Address space to reserve at first; it grows as needed. None: twice the disk.
    create : bool
        Make the folder's files and tables.

    Raises
    ------
    StoreError, StoreLockedError, StoreCorruptError
        As `as_store_error` says.
    """

    def __init__(self, path: Path, map_bytes: int | None = None, *, create: bool = False) -> None:
        self.path = path
        self.num_users = 0
        self._map_bytes = map_bytes or default_map_bytes(path)
        self._limit_bytes: int | None = None
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

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Give a snapshot. Keep it short: while it is open, the file cannot reuse freed pages."""
        with self._translated():
            txn = self._begin(write=False)
            try:
                yield self._wrapped(txn)
            finally:
                txn.abort()
                self._gate.leave()

    def write(self, action: Callable[[Transaction], T], *, frees_space: bool = False) -> T:
        """Run ``action`` in one write transaction and commit it, synced.

        ``action`` runs again from the start where the map had to grow, so all that it changes must
        be in the transaction. Whatever it raises undoes everything. One that ``frees_space`` may
        use a reserve, so that a full store can still delete: a deletion itself needs pages.
        """
        with self._translated():
            if not frees_space:
                self._withdraw_reserve()
            while True:
                try:
                    return self._attempt(action)
                except _MapIsFullError as full:
                    self._grow(full.map_bytes, self._most_bytes(frees_space))

    def set_limit(self, limit_bytes: int) -> None:
        """Let ``data.mdb`` never become larger than this, whoever writes in this process.

        The map itself ends there, so LMDB has no page beyond it to write to.
        """
        self._limit_bytes = limit_bytes
        with self._gate.alone(), self._translated():
            self._shrink_to(self._most_bytes(frees_space=False))

    def close(self) -> None:
        """Wait for running transactions, then close."""
        with self._gate.alone():
            self._is_closed = True
            self._close_lmdb()

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
        if self._is_quiet:
            self._pid = os.getpid()

    # --- transactions

    def _begin(self, *, write: bool) -> Any:
        """Begin, inside the gate; mend first what another process or a failed write left behind."""
        while True:
            self._gate.enter()
            try:
                return self._handle().begin(write=write, buffers=True)
            except lmdb.MapResizedError:
                mend = self._adopt_map
            except lmdb.PanicError:  # a commit could not write its last page: data.mdb is whole
                mend = self._close_lmdb
            except BaseException:
                self._gate.leave()
                raise
            self._gate.leave()
            with self._gate.alone():
                mend()

    def _attempt(self, action: Callable[[Transaction], T]) -> T:
        txn = self._begin(write=True)
        try:
            with txn:
                return action(self._wrapped(txn))
        except lmdb.MapFullError as error:
            raise _MapIsFullError(self._lmdb.info()["map_size"]) from error
        finally:
            self._gate.leave()

    def _wrapped(self, txn: Any) -> Transaction:
        return Transaction(txn, self._tables)

    # --- the map

    def _most_bytes(self, frees_space: bool) -> int:
        """Return how large the map may become."""
        if self._limit_bytes is None:
            return _MAX_MAP_BYTES
        reserve_bytes = min(_MAX_RESERVE_BYTES, self._limit_bytes // _RESERVE_SHARE)
        most_bytes = self._limit_bytes - (0 if frees_space else reserve_bytes)
        return most_bytes // self._page_bytes * self._page_bytes

    def _withdraw_reserve(self) -> None:
        """Take back what a deletion was granted, unless a transaction is under way just now."""
        if self._limit_bytes is not None and self._gate.enter_alone(timeout_s=0):
            try:
                self._shrink_to(self._most_bytes(frees_space=False))
            finally:
                self._gate.leave_alone()

    def _shrink_to(self, most_bytes: int) -> None:
        """Make the map this small, or as small as the pages that were ever used allow."""
        handle = self._handle()
        info = handle.info()
        used_bytes = (info["last_pgno"] + 1) * self._page_bytes
        if info["map_size"] > max(most_bytes, used_bytes):
            self._resize(handle, most_bytes)

    def _grow(self, full_bytes: int, most_bytes: int) -> None:
        """Double the map that was found full, unless someone was faster."""
        with self._gate.alone():
            handle = self._handle()
            if handle.info()["map_size"] > full_bytes:
                return
            wanted_bytes = min(2 * full_bytes, most_bytes)
            if wanted_bytes <= full_bytes:
                raise StoreFullError(
                    f"store {self.path}: its byte cap is reached; nothing that was acknowledged is "
                    "lost. Delete documents, or make a store with a larger max_bytes"
                )
            self._resize(handle, wanted_bytes)

    def _adopt_map(self) -> None:
        """Take over the size that another process has set."""
        self._resize(self._handle(), 0)

    def _resize(self, handle: Any, map_bytes: int) -> None:
        try:
            handle.set_mapsize(map_bytes)
        except lmdb.Error:  # the handle is of no use any more; the next transaction opens another
            self._close_lmdb()
            raise
        self._map_bytes = handle.info()["map_size"]

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
        self._lmdb = open_database(self.path, self._map_bytes, create)
        try:
            self._require_whole_file()
            self._tables = open_tables(self._lmdb, create)
            self._page_bytes = self._lmdb.stat()["psize"]
        except BaseException:
            self._close_lmdb()
            raise

    def _require_whole_file(self) -> None:
        """Refuse a file that was cut: touching a page that is not there kills the process."""
        pages = self._lmdb.info()["last_pgno"] + 1
        needed_bytes = pages * self._lmdb.stat()["psize"]
        file_bytes = (self.path / "data.mdb").stat().st_size
        if file_bytes < needed_bytes:
            raise StoreCorruptError(
                f"store {self.path}: data.mdb has {file_bytes} bytes where {needed_bytes} are in "
                "use; it was cut. Restore it from a copy, or ingest into a new store"
            )

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


class _MapIsFullError(Exception):
    """The map that a write found full, so that two threads do not both double it."""

    def __init__(self, map_bytes: int) -> None:
        super().__init__(map_bytes)
        self.map_bytes = map_bytes
