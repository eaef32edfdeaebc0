"""The numbers that rows are filed under, and the form of their keys."""

from __future__ import annotations

from collections.abc import Iterator

from kvpacket_store.store.schema import SHARED_NAMESPACE, Table
from kvpacket_store.store.transaction import Transaction

__all__ = [
    "MAX_NUMBER",
    "NUMBERED",
    "has_form",
    "largest_number",
    "number_of",
    "numbers_in_use",
]

MAX_NUMBER = (1 << 32) - 1
_NUMBER_BYTES = 4
NUMBERED = (
    Table.DOCUMENTS,
    Table.TEXTS,
    Table.EMBEDDINGS,
    Table.PINS,
    Table.REFERENCES,
    Table.MANIFESTS,
    Table.CHUNKS,
    Table.USAGE,
)
"""The tables whose keys begin with the number of a namespace; each after those it hangs on."""


def number_of(key: bytes) -> int | None:
    r"""Return the number that a row is filed under; None where the key is too short for one.

    Examples
    --------
    >>> number_of(b"\x00\x00\x00\x07d"), number_of(b"d")
    (7, None)
    """
    return None if len(key) < _NUMBER_BYTES else int.from_bytes(key[:_NUMBER_BYTES], "big")


def has_form(table: Table, key: bytes) -> bool:
    """Say whether a key is as long as keys of its table are.

    A row under a shorter one is no packet's, and must not be taken for all whose keys it begins.
    """
    if table in {Table.MANIFESTS, Table.REFERENCES, Table.USAGE}:
        return len(key) == _NUMBER_BYTES + 32
    if table is Table.CHUNKS:
        return len(key) == _NUMBER_BYTES + 32 + 4
    return len(key) > _NUMBER_BYTES + (4 if table is Table.EMBEDDINGS else 0)


def numbers_in_use(tx: Transaction) -> set[int]:
    """Return every number that a row is filed under; those of the store itself apart."""
    found = {number for table in NUMBERED for number in _numbers_in(tx, table)}
    return found - {SHARED_NAMESPACE}


def _numbers_in(tx: Transaction, table: Table) -> Iterator[int]:
    """Yield each number once: one step a number, not one a row."""
    start: bytes | None = b""
    while start is not None:
        key = next((key for key, _ in tx.scan_heads(table, start)), None)
        number = None if key is None else number_of(key)
        if key is None or number is None:
            start = None if key is None else key + b"\x00"
            continue
        yield number
        start = None if number == MAX_NUMBER else (number + 1).to_bytes(_NUMBER_BYTES, "big")


def largest_number(tx: Transaction) -> int:
    """Return the largest number that a row is filed under; 0 where there is none."""
    last_keys = (tx.last_key(table, _NUMBER_BYTES) for table in NUMBERED)
    return max((number_of(key) or 0 for key in last_keys if key is not None), default=0)
