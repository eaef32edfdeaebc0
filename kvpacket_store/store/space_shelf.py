"""What a store says and does about the space it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kvpacket_store.store.compaction import compact_file, delete_leftovers
from kvpacket_store.store.disk_use import folder_bytes
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.eviction import Spared, choose, evictable
from kvpacket_store.store.failures import read_only_error
from kvpacket_store.store.garbage import Sweep
from kvpacket_store.store.mending import mend_tables
from kvpacket_store.store.namespaces import every_namespace, find_namespace, shared_namespace
from kvpacket_store.store.reports import Counters, SpaceReport, StoreStats
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.usage import now_ms
from kvpacket_store.store.writer import Writer

__all__ = ["SpaceShelf"]


class SpaceShelf:
    """Sizes, and how they become smaller. A part of `PacketStore`."""

    path: Path
    _environment: Environment
    _writer: Writer

    def stats(self, namespace: str | None = None) -> StoreStats:
        """Return the sizes of a namespace or of the whole store, from counters."""
        with self._environment.read() as tx:
            counters = _counters(tx, namespace)
        snapshots = self._environment.snapshots()
        return StoreStats(
            **counters.to_dict(),
            file_bytes=folder_bytes(self.path),
            readers=len(snapshots),
            oldest_reader_txns=max((found.txns_behind for found in snapshots), default=0),
        )

    def spare_bytes(self) -> int | None:
        """Return how much may be written beside ``data.mdb`` now, and the cap still holds.

        However large ``data.mdb`` becomes. Of a cap, 1/16 is kept for that, 4 MiB at most: files in
        folders of the store's own count against it, so delete an old one first that gives way to
        a new one.

        Returns
        -------
        int or None
            Bytes; None where there is no cap.
        """
        return self._environment.spare_bytes()

    def gc(
        self, *, grace_s: int = 3600, progress: Callable[[int], None] | None = None
    ) -> SpaceReport:
        """Delete what nothing needs: packets of no document, rows that belong to nothing.

        Packets that have outlived the store's time to live are evicted. Others may read and write
        meanwhile. The file keeps its size; what is free in it is used again (see `compact`).

        Where damage has made it unclear whose something is, it stays, and `check` goes on naming
        it: rows of a namespace whose own row is lost (see `mend`), and what belongs to a document
        whose manifest is lost or unreadable, until that is put again or deleted.

        Parameters
        ----------
        grace_s : int
            Packets that no document refers to stay until they were not used for so long: an ingest
            may be about to refer to them.
        progress : callable or None
            Called with the number of rows looked at so far.

        Raises
        ------
        ReadOnlyError
            The store is open for reading alone.
        """
        self._writer.flush()
        before_bytes = self._live_bytes()
        with self._environment.read():  # while this is open, this process does not compact
            self._delete_leftovers()
        sweep = Sweep(self._writer, used_until_ms=now_ms() - 1000 * grace_s, progress=progress)
        sweep.run()
        num_evicted = self._evict_expired()
        return SpaceReport(
            before_bytes=before_bytes,
            after_bytes=self._live_bytes(),
            file_bytes=folder_bytes(self.path),
            deleted_packets=sweep.num_packets,
            evicted_packets=num_evicted,
            deleted_rows=sweep.num_rows,
        )

    def mend(self) -> None:
        """Put right what needs no model: references, shared packets, counters, namespaces.

        A namespace whose own row is lost has lost its name with it: its documents come back in one
        called ``recovered-<number>`` (or ``recovered-<number>-2`` and so on, where there is such
        one), for whoever runs the store to read, and to ingest under the right name again.
        """
        self._writer.write(mend_tables, frees_space=True)

    def compact(self) -> SpaceReport:
        """Write the file anew without its free pages, and put it in the place of the old one.

        No other process may have the store open; the calls of this one wait. The copy is made
        beside the folder and needs as much disk as is live.

        Raises
        ------
        StoreLockedError
            Another process has the store open.
        StoreFullError
            The disk has no room for the copy. Nothing has changed.
        ReadOnlyError
            The store is open for reading alone.
        """
        if self._writer.is_read_only:
            raise read_only_error(self.path)
        self._writer.flush()
        before_bytes = folder_bytes(self.path)
        compact_file(self._environment)
        after_bytes = folder_bytes(self.path)
        return SpaceReport(before_bytes, after_bytes, file_bytes=after_bytes)

    def _evict_expired(self) -> int:
        expired_ms = self._writer.expired_ms
        if expired_ms is None:
            return 0
        with self._environment.read() as tx:
            candidates = evictable(tx, Spared(), {})
        return self._writer.evict(choose(candidates, 0, expired_ms))

    def _delete_leftovers(self) -> None:
        if self._writer.is_read_only:
            raise read_only_error(self.path)
        with contextlib.suppress(PermissionError):  # then none could be made there either
            delete_leftovers(self.path)

    def _live_bytes(self) -> int:
        with self._environment.read() as tx:
            return _counters(tx, None).live_bytes


def _counters(tx: Transaction, namespace: str | None) -> Counters:
    counters = Counters()
    if namespace is not None:
        row = find_namespace(tx, namespace)
        return counters if row is None else row.counters
    for row in every_namespace(tx):
        counters.add(row.counters)
    shared = shared_namespace(tx).counters
    counters.raw_bytes += shared.raw_bytes
    counters.live_bytes += shared.live_bytes
    return counters
