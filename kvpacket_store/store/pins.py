"""Pins: documents whose packets are never evicted."""

from __future__ import annotations

from kvpacket_store.store.schema import Table
from kvpacket_store.store.transaction import Transaction

__all__ = ["is_pinned", "is_pinned_packet", "set_pin"]

_PINNED = b"\x01"


def set_pin(tx: Transaction, document: bytes, *, is_pinned: bool) -> None:
    """Pin the document with this key, or let it go; either twice is once."""
    if is_pinned:
        tx.put(Table.PINS, document, _PINNED)
    else:
        tx.delete(Table.PINS, document)


def is_pinned(tx: Transaction, document: bytes) -> bool:
    """Say whether the document with this key is pinned."""
    return tx.size(Table.PINS, document) is not None


def is_pinned_packet(tx: Transaction, key: bytes) -> bool:
    """Say whether a pinned document refers to the packet."""
    return any(is_pinned(tx, key[:4] + name) for name in tx.values(Table.REFERENCES, key))
