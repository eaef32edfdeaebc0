"""Small values that other programs keep beside the documents: by namespace, collection and key."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from kvpacket_store.errors import CodecError, UsageError
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.rows import pack, unpack
from kvpacket_store.store.schema import META_VALUE, Table, is_text, namespace_key, text_key
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["ValueShelf"]

_MAX_KEY_CHARS = 1000
_MAX_COLLECTION_CHARS = 1 << 20  # a digest stands for it
_PAGE_ROWS = 256
_COLLECTION_BYTES = 16
_KEY_LENGTH_BYTES = 2


class ValueShelf:
    """Bytes by key, that are nobody's documents. A part of `PacketStore`.

    A damaged value is a missing one: whoever filed it files it again.
    """

    _environment: Environment
    _writer: Writer

    def put_values(self, namespace: str, collection: str, values: Mapping[str, bytes]) -> None:
        """Write values, in the place of those before, in one synced commit.

        Parameters
        ----------
        namespace : str
            Whose.
        collection : str
            Which of their collections.
        values : mapping of str to bytes
            Keys have 1 to 1000 characters.

        Raises
        ------
        UsageError
            A key or a name is none, or a value is too large.
        StoreFullError, ReadOnlyError
            As `put_document`.
        """
        prefix = _prefix(namespace, collection)
        rows = {prefix + _key(key): pack(_with_key(key, value)) for key, value in values.items()}

        def action(tx: Transaction) -> None:
            for key, row in rows.items():
                tx.put(Table.META, key, row)

        if rows:
            self._writer.write_evicting(action, need_bytes=sum(map(len, rows.values())))

    def get_values(self, namespace: str, collection: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return those that are there and whole, as of one moment."""
        prefix = _prefix(namespace, collection)
        with self._environment.read() as tx:
            rows = {key: tx.get(Table.META, prefix + _key(key)) for key in keys}
        found = {}
        for key, row in rows.items():
            with contextlib.suppress(CodecError):
                if row is not None:
                    found[key] = _value(row)[1]
        return found

    def delete_values(self, namespace: str, collection: str, keys: Iterable[str]) -> int:
        """Delete values in one commit; return how many were there."""
        prefix = _prefix(namespace, collection)
        rows = {prefix + _key(key) for key in keys}
        if not rows:
            return 0
        return self._writer.write(
            lambda tx: sum(tx.delete(Table.META, row) for row in rows), frees_space=True
        )

    def iter_values(self, namespace: str, collection: str) -> Iterator[tuple[str, bytes]]:
        """Yield key and value of each, in the order of the keys.

        Some hundred are read at a time, so values that come or go meanwhile may be missed.
        """
        prefix = start = _prefix(namespace, collection)
        while page := self._page_of_values(prefix, start):
            start = page[-1][0] + b"\x00"
            for _, row in page:
                with contextlib.suppress(CodecError):
                    yield _value(row)

    def _page_of_values(self, prefix: bytes, start: bytes) -> list[tuple[bytes, bytes]]:
        with self._environment.read() as tx:
            return list(islice(tx.scan(Table.META, prefix=prefix, start=start), _PAGE_ROWS))


def _prefix(namespace: str, collection: str) -> bytes:
    """Return what the keys of a collection begin with; names of any length have one."""
    if not is_text(collection, _MAX_COLLECTION_CHARS):
        raise UsageError(f"collection {collection!r:.80} is not a name; pass a text")
    name = namespace_key(namespace) + b"\xff" + collection.encode("utf-8", "surrogatepass")
    return META_VALUE + hashlib.sha256(name).digest()[:_COLLECTION_BYTES]


def _key(key: str) -> bytes:
    if not is_text(key, _MAX_KEY_CHARS):
        raise UsageError(f"key {key!r:.80} is none; pass 1 to {_MAX_KEY_CHARS} characters")
    return text_key(key)


def _with_key(key: str, value: bytes) -> bytes:
    """Put a value's key before it: a long one does not stand in the table's key."""
    name = key.encode("utf-8", "surrogatepass")
    return len(name).to_bytes(_KEY_LENGTH_BYTES, "little") + name + value


def _value(row: bytes) -> tuple[str, bytes]:
    plain = unpack(row, "a value")
    length = _KEY_LENGTH_BYTES + int.from_bytes(plain[:_KEY_LENGTH_BYTES], "little")
    name = plain[_KEY_LENGTH_BYTES:length].decode("utf-8", "surrogatepass")
    return name, plain[length:]
