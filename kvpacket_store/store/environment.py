"""One LMDB environment: transactions, and the growth of its map up to a cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import lmdb

from kvpacket_store.errors import CapReachedError
from kvpacket_store.store.failures import read_only_error
from kvpacket_store.store.handle import OpenDatabase
from kvpacket_store.store.transaction import Transaction

__all__ = ["Environment"]

T = TypeVar("T")

_MAX_MAP_BYTES = 1 << 46
_RESERVE_SHARE = 16
_MAX_RESERVE_BYTES = 1 << 20
# Writing looks at pages beside those that it writes, and what is mapped counts as this process's
# memory: an ingest of 460 MB had 218 MB of the file mapped. Opening anew takes 2 ms.
_MAX_MAPPED_BYTES = 256 << 20


class Environment(OpenDatabase):
    """Transactions on the database of one store folder (see ``registry.py``)."""

    limit_bytes: int | None = None
    """How large ``data.mdb`` may become; None: as large as the disk."""
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
        return None if self.limit_bytes is None else self._most_bytes(frees_space=False)

    def set_limit(self, limit_bytes: int) -> None:
        """Let ``data.mdb`` never become larger than this, whoever writes in this process.

        The map itself ends there, so LMDB has no page beyond it to write to.
        """
        self.limit_bytes = limit_bytes
        if self.is_read_only:
            return
        with self._gate.alone(), self._translated():
            self._shrink_to(self._most_bytes(frees_space=False))

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
        if self.limit_bytes is None:
            return _MAX_MAP_BYTES
        reserve_bytes = min(_MAX_RESERVE_BYTES, self.limit_bytes // _RESERVE_SHARE)
        most_bytes = self.limit_bytes - (0 if frees_space else reserve_bytes)
        return most_bytes // self._page_bytes * self._page_bytes

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
        if self.limit_bytes is not None and self._gate.enter_alone(timeout_s=0):
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
