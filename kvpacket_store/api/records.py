"""K and V → the record, or base and enhancement, that the store files; and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpacket_store.codec import (
    DEFAULT_BASE_STEP,
    RecordReader,
    decode,
    decode_base,
    decode_layers,
    encode,
    encode_layers,
    named_pack,
    open_record,
)
from kvpacket_store.errors import CodecError, UsageError
from kvpacket_store.packet import kv_digest
from kvpacket_store.store import PacketRecord, StoredPacket
from kvpacket_store.types import BitArray, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.catalogue import Catalogue
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack
    from kvpacket_store.prefill import BodyKV

__all__ = ["decode_packet", "decode_packet_base", "encode_packet", "make_record", "open_packet"]


def make_record(
    store: Store,
    packet_key: str,
    token_ids: TokenIds,
    body: BodyKV,
    *,
    layers: int | None = None,
    importance: bytes | None = None,
) -> PacketRecord:
    """Encode a body as the store does now; the encoder verifies what it wrote.

    ``layers`` are the store's unless given; ``importance`` is filed beside them.

    Raises
    ------
    LevelUnavailableError
        The store's codec pack is lost.
    """
    record, enhancement = encode_packet(store, body.k, body.v, layers=layers)
    return PacketRecord(
        packet_key=packet_key,
        record=record,
        token_ids=token_ids,
        positions=int(body.k.shape[2]),
        raw_bytes=body.nbytes,
        kv_digest=kv_digest(body.k, body.v),
        engine=store.prefiller.engine,
        enhancement=enhancement,
        importance=importance,
    )


def encode_packet(
    store: Catalogue, k: BitArray, v: BitArray, *, layers: int | None = None
) -> tuple[bytes, bytes | None]:
    """Return record and enhancement as the store encodes now; None where it has one layer."""
    meta = store.meta  # once: another thread may change the level meanwhile
    pack = None if meta.codec_pack is None else store.codec_packs.find(meta.codec_pack)
    if (layers or meta.layers) == 1:
        return encode(k, v, kv_dtype=store.kv_dtype, level=meta.codec, pack=pack), None
    base_step = meta.base_step or DEFAULT_BASE_STEP
    return encode_layers(k, v, kv_dtype=store.kv_dtype, pack=pack, base_step=base_step)


def decode_packet(
    store: Catalogue,
    record: bytes,
    enhancement: bytes | None = None,
    *,
    pack: CodecPack | None = None,
) -> tuple[BitArray, BitArray]:
    """Return a packet's exact K and V, whichever level wrote it.

    ``pack`` is what the record names where the store has not got it.

    Raises
    ------
    CodecError
        The records are damaged, or the codec pack is lost; prefill the packet again.
    """
    try:
        packs = _packs(store, record) if pack is None else (pack,)
        if enhancement is None:
            return decode(record, packs=packs)
        return decode_layers(record, enhancement, packs=packs)
    except UsageError as error:  # a lost pack, or records of other parts than were filed
        raise CodecError(str(error)) from error


def decode_packet_base(store: Catalogue, packet: StoredPacket) -> tuple[BitArray, BitArray]:
    """Return K and V as a packet's base gives them; of one layer the exact ones.

    Errors as `decode_packet`.
    """
    if packet.manifest.num_records == 1:
        return decode_packet(store, packet.record)
    try:
        return decode_base(packet.record, packs=_packs(store, packet.record))
    except UsageError as error:
        raise CodecError(str(error)) from error


def open_packet(store: Catalogue, record: bytes, enhancement: bytes | None = None) -> RecordReader:
    """Return what gives a packet's K and V layer by layer, whichever level wrote it.

    They are exact, but of a base alone, which gives what `decode_packet_base` gives.

    Raises
    ------
    CodecError
        As `decode_packet`, of the heads and the pack now; of a layer that is damaged when it is
        asked for. Prefill the packet again.
    """
    try:
        return open_record(record, enhancement, packs=_packs(store, record))
    except UsageError as error:
        raise CodecError(str(error)) from error


def _packs(store: Catalogue, record: bytes) -> tuple[CodecPack, ...]:
    """Return the pack that a record names, loaded; none where it names none."""
    digest = named_pack(record)
    return () if digest is None else (store.codec_packs.find(digest),)
