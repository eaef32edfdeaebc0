"""The rows of the namespaces: their numbers, generations and counters."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvpacket_store.errors import CorruptRecordError, StoreCorruptError
from kvpacket_store.store.numbers import MAX_NUMBER, largest_number, numbers_in_use
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
    "has_lost_count",
    "lost_numbers",
    "restore_count",
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
    number = _next_number(tx)
    _save_last_number(tx, number)
    return NamespaceRow(id=number, name=name)


def _next_number(tx: Transaction) -> int:
    """Return a number that no namespace and no row has: two namespaces of one number are one."""
    last, largest = _last_number(tx), largest_number(tx)
    if last != _count_namespaces(tx) or last < largest:  # lost, or another row is
        last = max(last, largest, *_numbers_of_namespaces(tx), 0)
    number = last + 1
    if number > MAX_NUMBER:  # as a spoilt key may have it
        taken = numbers_in_use(tx).union(_numbers_of_namespaces(tx))
        number = next(free for free in range(1, MAX_NUMBER) if free not in taken)
    return number


def _last_number(tx: Transaction) -> int:
    """Return the number that was given out last; 0 where that is not known."""
    row = tx.get(Table.META, META_LAST_NAMESPACE) or b""
    return int.from_bytes(row, "big") if len(row) == 4 else 0


def _save_last_number(tx: Transaction, number: int) -> None:
    if number > _last_number(tx):
        tx.put(Table.META, META_LAST_NAMESPACE, number.to_bytes(4, "big"))


def restore_count(tx: Transaction) -> None:
    """Let the number that was given out last be no smaller than any that is in use."""
    _save_last_number(tx, max(_largest_numbers(tx)))


def has_lost_count(tx: Transaction) -> bool:
    """Say whether the number that was given out last is smaller than one that is in use."""
    return _last_number(tx) < max(_largest_numbers(tx))


def lost_numbers(tx: Transaction) -> list[int]:
    """Return the numbers of rows whose namespace has no row itself, in order."""
    return sorted(numbers_in_use(tx).difference(_numbers_of_namespaces(tx)))


def _largest_numbers(tx: Transaction) -> tuple[int, int]:
    """Return the largest number of a namespace, and that of a row."""
    return max(_numbers_of_namespaces(tx), default=0), largest_number(tx)


def _count_namespaces(tx: Transaction) -> int:
    has_shared = tx.size(Table.NAMESPACES, SHARED_NAME_KEY) is not None
    return tx.count_rows(Table.NAMESPACES) - has_shared


def _numbers_of_namespaces(tx: Transaction) -> Iterator[int]:
    """Yield the number of each namespace whose row can be read."""
    for _, value in tx.scan(Table.NAMESPACES):
        with contextlib.suppress(StoreCorruptError):
            yield _parse(value, "of unknown name").id


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
