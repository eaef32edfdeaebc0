"""What all packets of a store share: the adapter's header, and the preambles of prompts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvpacket_store.api.records import decode_packet, make_record
from kvpacket_store.errors import CodecError, KVPacketError, NotFoundError, StoreCorruptError
from kvpacket_store.packet import packet_key
from kvpacket_store.prefill import BodyKV
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["SharedBodies"]

_UNUSABLE = (CodecError, NotFoundError, StoreCorruptError)
_PASSING_PREAMBLES = 8  # of system prompts that requests bring


class SharedBodies:
    """Loads them once from a store, or makes them and files them there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[tuple[str, TokenIds], BodyKV] = {}
        self._passing: dict[TokenIds, BodyKV] = {}

    def header(self) -> BodyKV:
        """Return the adapter's header, stored once per store."""
        prefiller = self._store.prefiller
        if not self._store.adapter.header_slots:
            return prefiller.header()
        key = packet_key(prefiller.identity("header", ()))
        return self._find(key, (), prefiller.header)

    def preamble(self, token_ids: TokenIds, *, is_kept: bool = True) -> tuple[BodyKV, bool]:
        """Return a preamble's K and V, and whether no forward was needed for them.

        The store keeps it with ``is_kept``; else memory does, until some others were used.
        """
        prefiller = self._store.prefiller
        made: list[BodyKV] = []

        def make() -> BodyKV:
            made.append(prefiller.preamble(token_ids))
            return made[0]

        if is_kept:
            key = packet_key(prefiller.identity("preamble", token_ids))
            return self._find(key, token_ids, make), not made
        body = self._passing.pop(token_ids, None) or make()
        self._passing[token_ids] = body  # the last one used stands last
        while len(self._passing) > _PASSING_PREAMBLES:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread did
                del self._passing[next(iter(self._passing))]
        return body, not made

    def _find(self, key: str, token_ids: TokenIds, make: Callable[[], BodyKV]) -> BodyKV:
        """Return a body that the whole store shares; make and keep it where it is not there."""
        if (key, token_ids) in self._found:
            return self._found[key, token_ids]
        try:
            record = self._store.packets.read_shared(key, token_ids)
            body = BodyKV(*decode_packet(self._store, record))
        except _UNUSABLE:
            body = make()
            with contextlib.suppress(KVPacketError):
                shared = make_record(self._store, key, token_ids, body, layers=1)
                self._store.packets.put_shared(shared)
        self._found[key, token_ids] = body
        return body
