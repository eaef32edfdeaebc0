"""When packets were last used: written with them, noted by readers, written back now and then.

A row of table ``usage``: when (uint64, ms since 1970) and how many stored bytes an eviction
would give back (uint64), big-endian. Only packets that have their record have a row.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping

from kvpacket_store.store.namespaces import find_namespace
from kvpacket_store.store.schema import Table, packet_bytes
from kvpacket_store.store.transaction import Transaction

__all__ = ["UsageNotes", "apply_notes", "mark_used", "now_ms", "parse_usage", "write_usage"]

_ROW = struct.Struct(">QQ")
_MAX_NOTES = 4096
_MANY_NOTES = 256
_OLD_MS = 30_000


def now_ms() -> int:
    """Return the time as `keep_since_ms` means it: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class UsageNotes:
    """What readers have used and no transaction has written yet.

    No lock: a deque's own steps are whole, and a lock might be held by a thread that a fork leaves
    behind. Of too many notes the oldest are forgotten.

    Examples
    --------
    >>> notes = UsageNotes()
    >>> notes.add("n", ["ab" * 32])
    >>> notes.are_due, len(notes.take()), notes.take()
    (False, 1, {})
    """

    def __init__(self) -> None:
        self._notes: deque[tuple[str, bytes, int]] = deque(maxlen=_MAX_NOTES)

    def add(self, namespace: str, packet_keys: Iterable[str]) -> None:
        """Note a use of each packet, now."""
        now = now_ms()
        for packet_key in packet_keys:
            self._notes.append((namespace, packet_bytes(packet_key), now))

    def put_back(self, notes: Mapping[tuple[str, bytes], int]) -> None:
        """Note again what could not be written."""
        for (namespace, packet), used_ms in notes.items():
            self._notes.append((namespace, packet, used_ms))

    @property
    def are_due(self) -> bool:
        """Whether they are many, or old."""
        try:
            return len(self._notes) >= _MANY_NOTES or now_ms() - self._notes[0][2] >= _OLD_MS
        except IndexError:
            return False

    def take(self) -> dict[tuple[str, bytes], int]:
        """Take all notes out: namespace and packet, and when it was last used."""
        taken: dict[tuple[str, bytes], int] = {}
        try:
            while True:
                namespace, packet, used_ms = self._notes.popleft()
                taken[namespace, packet] = max(used_ms, taken.get((namespace, packet), 0))
        except IndexError:
            return taken


def write_usage(tx: Transaction, key: bytes, num_bytes: int, used_ms: int | None = None) -> None:
    """Write the row of a packet that was just written, and last used then or at ``used_ms``."""
    tx.put(Table.USAGE, key, _ROW.pack(now_ms() if used_ms is None else used_ms, num_bytes))


def mark_used(tx: Transaction, key: bytes, used_ms: int | None = None) -> None:
    """Move a packet's last use to now, or to ``used_ms``, never back."""
    row = tx.get(Table.USAGE, key)
    if row is None:
        return
    last_ms, num_bytes = parse_usage(row)
    used_ms = now_ms() if used_ms is None else used_ms
    if used_ms > last_ms:
        tx.put(Table.USAGE, key, _ROW.pack(used_ms, num_bytes))


def apply_notes(tx: Transaction, notes: Mapping[tuple[str, bytes], int]) -> None:
    """Write notes; those of packets that are gone are dropped."""
    prefixes: dict[str, bytes | None] = {}
    for (namespace, packet), used_ms in notes.items():
        if namespace not in prefixes:
            row = find_namespace(tx, namespace)
            prefixes[namespace] = None if row is None else row.id.to_bytes(4, "big")
        prefix = prefixes[namespace]
        if prefix is not None:
            mark_used(tx, prefix + packet, used_ms)


def parse_usage(row: bytes) -> tuple[int, int]:
    """Return when a packet was last used, and its stored bytes; a spoilt row is an old one."""
    if len(row) != _ROW.size:
        return 0, 0
    used_ms, num_bytes = _ROW.unpack(row)
    return used_ms, num_bytes
