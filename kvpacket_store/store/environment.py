"""One LMDB environment: transactions, and the growth of its map up to a cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import lmdb

from kvpacket_store.errors import CapReachedError
from kvpacket_store.store.database import DATA_FILE
from kvpacket_store.store.disk_use import FolderUse, bytes_for_data, changes_in
from kvpacket_store.store.failures import read_only_error
from kvpacket_store.store.handle import OpenDatabase
from kvpacket_store.store.transaction import Transaction

__all__ = ["Environment"]

T = TypeVar("T")

_MAX_MAP_BYTES = 1 << 46
_RESERVE_SHARE = 16
_MAX_RESERVE_BYTES = 1 << 20
_UNSEEN_BYTES = 2 * 4096  # the rest of a file's last block, and the block of a folder for it
# Writing looks at pages beside those that it writes, and what is mapped counts as this process's
# memory: an ingest of 460 MB had 218 MB of the file mapped. Opening anew takes 2 ms.
_MAX_MAPPED_BYTES = 256 << 20


class Environment(OpenDatabase):
    """Transactions on the database of one store folder (see ``registry.py``)."""

    cap_bytes: int | None = None
    """How much the folder may take; None: as much as the disk has."""
    _limit_bytes: int | None = None
    """How large ``data.mdb`` may become."""
    _full_bytes = 0
    """The same, if what is derived from the store takes no more than is kept for it."""
    _changes: tuple[int, ...] = ()
    _last_page = 0
    _put_bytes = 0

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
        if self.is_read_only:
            raise read_only_error(self.path)
        with self._translated():
            if not frees_space:
                self._withdraw_reserve()
            while True:
                try:
                    result = self._attempt(action)
                    self._unmap_now_and_then()
                    return result
                except _MapIsFullError as full:
                    self._grow(full.map_bytes, self._most_bytes(frees_space))

    @property
    def room_bytes(self) -> int | None:
        """How large ``data.mdb`` may become for what is not a deletion; None: no limit."""
        return None if self._limit_bytes is None else self._most_bytes(frees_space=False)

    def set_cap(self, cap_bytes: int) -> None:
        """Let the folder never take more than this, whoever writes in this process.

        The map itself ends at what other files leave, so LMDB has no page beyond it to write to.
        """
        self.cap_bytes = cap_bytes
        with self._gate.alone(), self._translated():
            self._look_beside()
            if not self.is_read_only:
                self._shrink_to(self._most_bytes(frees_space=False))

    def spare_bytes(self) -> int | None:
        """Return what may be written beside ``data.mdb``; see ``PacketStore.spare_bytes``."""
        if self.cap_bytes is None:
            return None
        with self._translated():
            self._look_beside()
            data_bytes = (self.path / DATA_FILE).stat().st_size
            beside_bytes = FolderUse.of(self.path).num_bytes
            taken_bytes = max(data_bytes, self._most_bytes(frees_space=True)) + beside_bytes
        return max(0, self.cap_bytes - taken_bytes - _UNSEEN_BYTES)

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
                tx = self._wrapped(txn)
                result = action(tx)
            self._put_bytes += tx.put_bytes
            self._watch_growth()
            return result
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
        reserve_bytes = min(_MAX_RESERVE_BYTES, self._full_bytes // _RESERVE_SHARE)
        most_bytes = max(0, self._limit_bytes - reserve_bytes)
        if frees_space:  # though what others have written meanwhile may have used the reserve up
            file_bytes = (self.path / DATA_FILE).stat().st_size
            granted_bytes = min(self._full_bytes, file_bytes + reserve_bytes)
            most_bytes = max(self._limit_bytes, granted_bytes)
        return most_bytes // self._page_bytes * self._page_bytes

    def _look_beside(self) -> None:
        """Leave ``data.mdb`` what other files leave of the cap; count again if any has changed."""
        if self.cap_bytes is not None:
            changes = changes_in(self.path)
            if changes != self._changes:
                use = FolderUse.of(self.path)
                self._limit_bytes = bytes_for_data(self.cap_bytes, use)
                self._full_bytes = bytes_for_data(self.cap_bytes, replace(use, derived_bytes=0))
                self._changes = changes

    def _watch_growth(self) -> None:
        """Where the file has grown, free what killed readers hold before it grows again."""
        last_page = self._lmdb.info()["last_pgno"]
        has_grown, self._last_page = last_page > self._last_page, last_page
        if has_grown:
            self._lmdb.reader_check()

    def _unmap_now_and_then(self) -> None:
        """Close the file after much was written, unless it is in use; it is opened when needed."""
        if self._put_bytes > _MAX_MAPPED_BYTES and self._gate.enter_alone(timeout_s=0):
            try:
                self._put_bytes = 0
                self._close_lmdb()
            finally:
                self._gate.leave_alone()

    def _withdraw_reserve(self) -> None:
        """Take back what a deletion was granted, unless a transaction is under way just now."""
        self._look_beside()
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
            self._resize(handle, max(most_bytes, used_bytes))

    def _grow(self, full_bytes: int, most_bytes: int) -> None:
        """Double the map that was found full, unless someone was faster."""
        with self._gate.alone():
            handle = self._handle()
            if handle.info()["map_size"] > full_bytes or handle.reader_check():
                return
            wanted_bytes = min(2 * full_bytes, most_bytes)
            if wanted_bytes <= full_bytes:
                raise CapReachedError(
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


class _MapIsFullError(Exception):
    """The map that a write found full, so that two threads do not both double it."""

    def __init__(self, map_bytes: int) -> None:
        super().__init__(map_bytes)
        self.map_bytes = map_bytes
