"""The rows of the namespaces: their numbers, generations and counters."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvpacket_store.errors import CorruptRecordError, StoreCorruptError
from kvpacket_store.store.reports import Counters
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import (
    META_LAST_NAMESPACE,
    SHARED_NAME_KEY,
    SHARED_NAMESPACE,
    Table,
    namespace_key,
)
from kvpacket_store.store.transaction import Transaction

__all__ = [
    "NamespaceRow",
    "every_namespace",
    "find_namespace",
    "find_or_add_namespace",
    "save_namespace",
    "shared_namespace",
]

_STEP_LIMIT = 1 << 32


@dataclass(slots=True)
class NamespaceRow:
    """A namespace as a transaction sees it; changes last once it is saved."""

    id: int
    name: str
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    is_suspect: bool = False
    """Damage was met, so that the counters have to be counted again before they are saved."""

    def advance(self) -> None:
        """Move to a generation that was never used before.

        The step is random: a store that was restored from a copy and changed again must not come
        to a number that an index of the lost future bears.
        """
        self.generation += 1 + secrets.randbelow(_STEP_LIMIT)


def find_namespace(tx: Transaction, name: str) -> NamespaceRow | None:
    """Return a namespace's row, or None."""
    return _load(tx, namespace_key(name), name)


def find_or_add_namespace(tx: Transaction, name: str) -> NamespaceRow:
    """Return a namespace's row, with a new number where there was none."""
    row = find_namespace(tx, name)
    if row is not None:
        return row
    last = int.from_bytes(tx.get(Table.META, META_LAST_NAMESPACE) or b"", "big") + 1
    tx.put(Table.META, META_LAST_NAMESPACE, last.to_bytes(4, "big"))
    return NamespaceRow(id=last, name=name)


def shared_namespace(tx: Transaction) -> NamespaceRow:
    """Return the row of what belongs to the store itself."""
    row = _load(tx, SHARED_NAME_KEY, "")
    return NamespaceRow(SHARED_NAMESPACE, "") if row is None else row


def save_namespace(tx: Transaction, row: NamespaceRow) -> None:
    """Write a row back."""
    key = SHARED_NAME_KEY if row.id == SHARED_NAMESPACE else namespace_key(row.name)
    values = {
        "id": row.id,
        "name": row.name,
        "generation": row.generation,
        "counters": row.counters.to_dict(),
    }
    tx.put(Table.NAMESPACES, key, pack(json_bytes(values)))


def every_namespace(tx: Transaction, after: str | None = None) -> Iterator[NamespaceRow]:
    """Yield the namespaces in the order of their names, from ``after`` (itself included) on."""
    start = b"" if after is None else namespace_key(after)
    for key, value in tx.scan(Table.NAMESPACES, start=start):
        if key != SHARED_NAME_KEY:
            yield _parse(value, "of unknown name")


def _load(tx: Transaction, key: bytes, name: str) -> NamespaceRow | None:
    value = tx.get(Table.NAMESPACES, key)
    return None if value is None else _parse(value, repr(name))


def _parse(value: bytes, name: str) -> NamespaceRow:
    try:
        values = unpack_json(value, f"the row of namespace {name}")
        return NamespaceRow(
            id=values["id"],
            name=values["name"],
            generation=values["generation"],
            counters=Counters(**values["counters"]),
        )
    except (CorruptRecordError, KeyError, TypeError) as error:
        raise StoreCorruptError(
            f"the row of namespace {name} is damaged ({error}); restore the store from a copy, or "
            "ingest again into a new one"
        ) from error
