"""What nothing needs: packets of no document, and rows that belong to nothing.

Where damage has made it unclear whose a row is, the row stays: those of a namespace whose own row
is lost, and those of a document whose manifest is lost or unreadable.

Tables are walked in write transactions of a few hundred rows each: what is found is deleted before
anyone can change it, no transaction is huge, and one that finds nothing writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from kvpacket_store.errors import CapReachedError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.claims import ClaimsReader
from kvpacket_store.store.documents import remove_packet
from kvpacket_store.store.mending import add_missing_references
from kvpacket_store.store.namespaces import NamespaceRow, every_namespace
from kvpacket_store.store.numbers import NUMBERED, has_form, number_of
from kvpacket_store.store.schema import SHARED_NAMESPACE, Table, chunk_key
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.usage import parse_usage, write_usage
from kvpacket_store.store.writer import Writer

__all__ = ["Sweep"]

_MAX_ROWS = 1024
_MAX_PACKETS = 64


@dataclass(slots=True)
class _Found:
    """What one transaction has deleted, and where the next one goes on."""

    num_seen: int = 0
    num_rows: int = 0
    following: bytes | None = None
    doomed: list[tuple[bytes, bytes]] = field(default_factory=list)
    packets: list[bytes] = field(default_factory=list)


class Sweep:
    """One walk through all tables.

    Parameters
    ----------
    writer : Writer
        Of the store.
    used_until_ms : int
        Packets of no document go if they were last used at this time or before.
    progress : callable or None
        Called with the number of rows looked at so far.
    """

    def __init__(
        self, writer: Writer, *, used_until_ms: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.num_packets = 0
        self.num_rows = 0
        self._num_seen = 0
        self._claims = ClaimsReader()
        self._writer = writer
        self._used_until_ms = used_until_ms
        self._progress = progress

    def run(self) -> None:
        """Walk."""
        for table in NUMBERED:  # each after those that its rows hang on
            start: bytes | None = b""
            max_rows = _MAX_ROWS
            while start is not None:
                action = partial(self._step, table=table, start=start, max_rows=max_rows)
                try:
                    found = self._writer.write(action, frees_space=True)
                except CapReachedError:
                    if max_rows == 1:
                        raise
                    max_rows = max(1, max_rows // 8)
                    continue
                self._count(found)
                start = found.following

    def _count(self, found: _Found) -> None:
        self.num_packets += len(found.packets)
        self.num_rows += found.num_rows
        self._num_seen += found.num_seen
        if self._progress is not None:
            self._progress(self._num_seen)

    def _step(self, tx: Transaction, table: Table, start: bytes, max_rows: int) -> _Found:
        found = _Found()
        namespaces = {row.id: row for row in every_namespace(tx)}
        for key, value in tx.scan_heads(table, start):
            is_full = found.num_seen >= max_rows or len(found.packets) >= _MAX_PACKETS
            if is_full and key != start:
                found.following = key
                break
            found.num_seen += 1
            if self._is_lost(tx, table, key, value, namespaces):
                found.doomed.append((key, value))
            elif number_of(key) in namespaces:
                self._look_after(tx, table, key, found)
        for key, value in found.doomed:
            tx.delete(table, key, value)
        found.num_rows = len(found.doomed)
        _delete_packets(tx, found, namespaces)
        return found

    def _is_lost(
        self,
        tx: Transaction,
        table: Table,
        key: bytes,
        value: bytes,
        namespaces: Collection[int],
    ) -> bool:
        number = number_of(key)
        if not has_form(table, key):
            return True
        if number == SHARED_NAMESPACE and table not in {Table.MANIFESTS, Table.CHUNKS}:
            return True
        if number != SHARED_NAMESPACE and number not in namespaces:
            return False  # of a namespace whose own row is lost: that is for `mend`
        return not self._belongs(tx, table, key, value)

    def _look_after(self, tx: Transaction, table: Table, key: bytes, found: _Found) -> None:
        if table is Table.MANIFESTS:
            self._packet(tx, key, found)
        elif table is Table.DOCUMENTS:
            row = tx.get(table, key) or b""
            found.num_seen += add_missing_references(tx, key, row)

    def _belongs(self, tx: Transaction, table: Table, key: bytes, value: bytes) -> bool:
        """Say whether a row hangs on another that is there."""
        if table is Table.PINS:
            return self._claims.of(tx, key) is not None
        if table is Table.EMBEDDINGS:
            claims = self._claims.of(tx, key[:-4])
            return claims is not None and claims.have_segment(int.from_bytes(key[-4:], "big"))
        if table is Table.REFERENCES:
            claims = self._claims.of(tx, key[:4] + value)
            return claims is not None and claims.name(key[4:])
        if table is Table.CHUNKS:
            return tx.size(Table.MANIFESTS, key[:-4]) is not None
        if table is Table.USAGE:
            return tx.size(Table.CHUNKS, chunk_key(key, 0)) is not None
        return True  # a text without its manifest is what the document can be ingested from

    def _packet(self, tx: Transaction, key: bytes, found: _Found) -> None:
        if self._is_garbage(tx, key):
            found.packets.append(key)
        elif tx.size(Table.USAGE, key) is None:
            sizes = [size for _, size in tx.scan_sizes(Table.CHUNKS, prefix=key)]
            if sizes:  # without the row it could never be evicted
                write_usage(tx, key, sum(sizes))

    def _is_garbage(self, tx: Transaction, key: bytes) -> bool:
        if tx.count_values(Table.REFERENCES, key):
            return False
        usage = tx.get(Table.USAGE, key)
        return usage is None or parse_usage(usage)[0] <= self._used_until_ms


def _delete_packets(tx: Transaction, found: _Found, namespaces: dict[int, NamespaceRow]) -> None:
    touched: set[int] = set()
    for key in found.packets:
        number = int.from_bytes(key[:4], "big")
        remove_packet(tx, namespaces[number], key, is_expected=True)
        touched.add(number)
    for number in touched:
        settle(tx, namespaces[number])
