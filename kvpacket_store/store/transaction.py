"""One LMDB transaction, with tables by name. What comes out is copied, with one exception."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpacket_store.store.schema import Table

__all__ = ["Transaction"]


class Transaction:
    """Gets, puts and scans of one snapshot.

    Parameters
    ----------
    txn : lmdb.Transaction
        Begun with ``buffers=True``.
    tables : mapping of Table to database handle
        All of them.
    """

    __slots__ = ("_tables", "_txn", "put_bytes")

    def __init__(self, txn: Any, tables: Mapping[Table, Any]) -> None:
        self._txn = txn
        self._tables = tables
        self.put_bytes = 0

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return a copy of the value, or None."""
        view = self._txn.get(key, db=self._tables[table])
        return None if view is None else bytes(view)

    def view(self, table: Table, key: bytes) -> memoryview | None:
        """Return LMDB's own memory, or None.

        Copy it and release it before the transaction ends or writes again: later it shows another
        key's bytes, without any error.
        """
        view: memoryview | None = self._txn.get(key, db=self._tables[table])
        return view

    def size(self, table: Table, key: bytes) -> int | None:
        """Return the length of the value, or None; its pages are not read."""
        view = self._txn.get(key, db=self._tables[table])
        return None if view is None else len(view)

    def put(self, table: Table, key: bytes, value: bytes | memoryview) -> None:
        """Set the value; in `Table.REFERENCES`, add it to those that the key has."""
        self._txn.put(key, value, db=self._tables[table])
        self.put_bytes += len(value)

    def delete(self, table: Table, key: bytes, value: bytes = b"") -> bool:
        """Delete the key, or that one of its values; say whether it was there."""
        return bool(self._txn.delete(key, value, db=self._tables[table]))

    def values(self, table: Table, key: bytes) -> list[bytes]:
        """Return every value of a key, in order."""
        with self._txn.cursor(db=self._tables[table]) as cursor:
            if not cursor.set_key(key):
                return []
            return [bytes(value) for value in cursor.iternext_dup()]

    def count_values(self, table: Table, key: bytes) -> int:
        """Return how many values a key has."""
        with self._txn.cursor(db=self._tables[table]) as cursor:
            return int(cursor.count()) if cursor.set_key(key) else 0

    def has_value(self, table: Table, key: bytes, value: bytes) -> bool:
        """Say whether a key has this one among its values."""
        with self._txn.cursor(db=self._tables[table]) as cursor:
            return bool(cursor.set_key_dup(key, value))

    def count_rows(self, table: Table) -> int:
        """Return how many values a table has."""
        return int(self._txn.stat(self._tables[table])["entries"])

    def last_key(self, table: Table, min_bytes: int) -> bytes | None:
        """Return the last key that is not shorter than this, or None."""
        with self._txn.cursor(db=self._tables[table]) as cursor:
            for key in cursor.iterprev(keys=True, values=False):
                if len(key) >= min_bytes:
                    return bytes(key)
        return None

    def scan(
        self, table: Table, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value, in order, of keys that begin with ``prefix``, from ``start`` on."""
        for key, value in self._scan(table, prefix, start):
            yield key, bytes(value)

    def scan_sizes(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Yield key and length of the value, in order; the values' pages are not read."""
        for key, value in self._scan(table, prefix, b""):
            yield key, len(value)

    def scan_heads(self, table: Table, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys, in order, from ``start`` on; with the value in `Table.REFERENCES` only."""
        for key, value in self._scan(table, b"", start):
            yield key, bytes(value) if table is Table.REFERENCES else b""

    def _scan(self, table: Table, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, Any]]:
        with self._txn.cursor(db=self._tables[table]) as cursor:
            first = max(prefix, start)
            if not (cursor.set_range(first) if first else cursor.first()):
                return
            for view, value in cursor:
                key = bytes(view)
                if not key.startswith(prefix):
                    return
                yield key, value
