"""K and V → the record that the store files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpacket_store.codec import encode
from kvpacket_store.packet import kv_digest
from kvpacket_store.store import PacketRecord
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.prefill import BodyKV

__all__ = ["make_record"]


def make_record(store: Store, packet_key: str, token_ids: TokenIds, body: BodyKV) -> PacketRecord:
    """Encode a body at the store's level; the encoder verifies what it wrote."""
    return PacketRecord(
        packet_key=packet_key,
        record=encode(body.k, body.v, kv_dtype=store.kv_dtype, level=store.meta.codec),
        token_ids=token_ids,
        positions=int(body.k.shape[2]),
        raw_bytes=body.nbytes,
        kv_digest=kv_digest(body.k, body.v),
        engine=store.prefiller.engine,
    )
