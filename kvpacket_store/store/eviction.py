"""Which packets give way, and in what order: those that were used least recently."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import evict_packet
from kvpacket_store.store.namespaces import every_namespace
from kvpacket_store.store.numbers import number_of
from kvpacket_store.store.pins import is_pinned_packet
from kvpacket_store.store.schema import Table
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.usage import parse_usage

__all__ = ["Candidate", "Spared", "choose", "evict_batch", "evictable"]


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A packet that may be evicted; the order is that of their last uses.

    Parameters
    ----------
    used_ms : int
        When it was last used.
    key : bytes
        Its row's.
    num_bytes : int
        Of its record.
    """

    used_ms: int
    key: bytes
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Spared:
    """What may not be evicted, pinned packets apart.

    Parameters
    ----------
    packets : collection of bytes
        Packet keys that the write itself names.
    keep_since_ms : int or None
        Packets used at that time or later stay.
    """

    packets: Collection[bytes] = ()
    keep_since_ms: int | None = None

    def includes(self, key: bytes, used_ms: int) -> bool:
        """Say whether the packet stays."""
        if self.keep_since_ms is not None and used_ms >= self.keep_since_ms:
            return True
        return key[4:] in self.packets


def evictable(
    tx: Transaction, spared: Spared, notes: Mapping[tuple[str, bytes], int]
) -> list[Candidate]:
    """Return what may be evicted, least recently used first; ``notes`` are uses not yet written."""
    noted = _by_row(tx, notes)
    numbers = {row.id for row in every_namespace(tx)}
    has_pins = tx.count_rows(Table.PINS) > 0
    found: list[Candidate] = []
    for key, row in tx.scan(Table.USAGE):
        if number_of(key) not in numbers:  # a namespace whose own row is lost: it is for `mend`
            continue
        used_ms, num_bytes = parse_usage(row)
        used_ms = max(used_ms, noted.get(key, 0))
        if not spared.includes(key, used_ms) and not (has_pins and is_pinned_packet(tx, key)):
            found.append(Candidate(used_ms, key, num_bytes))
    return sorted(found)


def choose(
    candidates: Sequence[Candidate], wanted_bytes: int, expired_ms: int | None
) -> list[Candidate]:
    """Return the first that give so many bytes back, and all that were last used before a time."""
    chosen: list[Candidate] = []
    freed_bytes = 0
    for candidate in candidates:
        is_expired = expired_ms is not None and candidate.used_ms < expired_ms
        if freed_bytes >= wanted_bytes and not is_expired:
            break
        chosen.append(candidate)
        freed_bytes += candidate.num_bytes
    return chosen


def evict_batch(tx: Transaction, candidates: Sequence[Candidate]) -> int:
    """Evict those that nobody has used or pinned since they were chosen; return how many."""
    namespaces = {row.id: row for row in every_namespace(tx)}
    touched: set[int] = set()
    num_evicted = 0
    for candidate in candidates:
        row = tx.get(Table.USAGE, candidate.key)
        namespace = namespaces.get(int.from_bytes(candidate.key[:4], "big"))
        if row is None or namespace is None or parse_usage(row)[0] > candidate.used_ms:
            continue
        if not is_pinned_packet(tx, candidate.key) and evict_packet(tx, namespace, candidate.key):
            touched.add(namespace.id)
            num_evicted += 1
    for number in touched:
        settle(tx, namespaces[number])
    return num_evicted


def _by_row(tx: Transaction, notes: Mapping[tuple[str, bytes], int]) -> dict[bytes, int]:
    if not notes:
        return {}
    numbers = {row.name: row.id.to_bytes(4, "big") for row in every_namespace(tx)}
    return {
        numbers[namespace] + packet: used_ms
        for (namespace, packet), used_ms in notes.items()
        if namespace in numbers
    }
