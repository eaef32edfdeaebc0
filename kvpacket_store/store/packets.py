"""Packets inside a transaction: chunks first, manifest last. See also ``packet_copies``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import xxhash

from kvpacket_store.errors import CorruptRecordError, NotFoundError, UsageError
from kvpacket_store.store.numbers import has_form
from kvpacket_store.store.packet_manifest import PacketManifest, PacketRecord
from kvpacket_store.store.reports import Counters
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import CHUNK_BYTES, Table, chunk_key, packet_bytes
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.types import TokenIds

__all__ = [
    "PreparedPacket",
    "cut",
    "delete_packet",
    "evict_layers",
    "find_manifest",
    "is_intact",
    "parse_manifest",
    "prepare_packet",
    "require_held",
    "require_tokens",
    "size_of",
    "write_packet",
]


@dataclass(frozen=True, slots=True)
class PreparedPacket:
    """A packet with everything computed that needs no transaction."""

    manifest: PacketManifest
    manifest_row: bytes
    layers: tuple[memoryview, ...]

    @property
    def num_bytes(self) -> int:
        """Of all layers and the manifest."""
        return self.manifest.stored_bytes + len(self.manifest_row)


def prepare_packet(record: PacketRecord) -> PreparedPacket:
    """Check and cut what is stored of a packet.

    Raises
    ------
    UsageError
        The key is none, a record is empty, or a field is not what it should be.
    """
    packet_bytes(record.packet_key)
    try:
        layers = tuple(memoryview(layer).cast("B") for layer in record.layers)
        manifest = _manifest_of(record, layers)
        row = pack(json_bytes(manifest.to_json()))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"packet {record.packet_key}: {error}; pass bytes, and plain integers and strings"
        ) from error
    if not all(layers):
        raise UsageError(f"packet {record.packet_key} has an empty record; encode it first")
    return PreparedPacket(manifest, row, layers)


def _manifest_of(record: PacketRecord, layers: Sequence[memoryview]) -> PacketManifest:
    return PacketManifest(
        packet_key=record.packet_key,
        token_ids=tuple(record.token_ids),
        positions=record.positions,
        raw_bytes=record.raw_bytes,
        kv_digest=record.kv_digest,
        engine=record.engine,
        layer_bytes=tuple(map(len, layers)),
        chunk_bytes=CHUNK_BYTES,
        chunk_checksums=tuple(map(xxhash.xxh3_64_hexdigest, cut(layers, CHUNK_BYTES))),
        has_importance=record.importance is not None,
    )


def write_packet(tx: Transaction, key: bytes, packet: PreparedPacket) -> Counters:
    """Write chunks, then the manifest; return what that adds.

    Nothing may be filed under ``key`` yet (see `delete_packet`).
    """
    for index, chunk in enumerate(cut(packet.layers, packet.manifest.chunk_bytes)):
        tx.put(Table.CHUNKS, chunk_key(key, index), chunk)
    tx.put(Table.MANIFESTS, key, packet.manifest_row)
    return size_of(packet.manifest, len(packet.manifest_row))


def cut(layers: Iterable[memoryview], step: int) -> Iterator[memoryview]:
    """Yield the chunks of all layers; no chunk has bytes of two."""
    for layer in layers:
        for start in range(0, len(layer), step):
            yield layer[start : start + step]


def size_of(manifest: PacketManifest, row_bytes: int) -> Counters:
    """Return a packet's share of its namespace's counters."""
    if manifest.is_evicted:
        return Counters(evicted_packets=1, live_bytes=row_bytes)
    return Counters(
        packets=1,
        tokens=manifest.tokens,
        raw_bytes=manifest.raw_bytes,
        live_bytes=manifest.stored_bytes + row_bytes,
    )


def delete_packet(tx: Transaction, key: bytes) -> Counters | None:
    """Delete whatever is filed under ``key``, whole or damaged.

    Returns
    -------
    Counters or None
        What that takes away; None where the manifest is unreadable and does not say.
    """
    row = tx.get(Table.MANIFESTS, key)
    _delete_chunks(tx, key)
    tx.delete(Table.USAGE, key)
    if row is None:
        return Counters()
    tx.delete(Table.MANIFESTS, key)
    try:
        return size_of(parse_manifest(row, key), len(row))
    except CorruptRecordError:
        return None


def evict_layers(tx: Transaction, key: bytes) -> Counters | None:
    """Delete a packet's layers and keep its manifest.

    Returns
    -------
    Counters or None
        What that changes; None where the manifest is missing or unreadable, so that they
        stay for whoever looks into that.
    """
    tx.delete(Table.USAGE, key)
    row = tx.get(Table.MANIFESTS, key)
    try:
        manifest = None if row is None else parse_manifest(row, key)
    except CorruptRecordError:
        return None
    if row is None or manifest is None:
        return None
    _delete_chunks(tx, key)
    evicted = replace(manifest, layer_bytes=(), chunk_checksums=(), has_importance=False)
    new_row = pack(json_bytes(evicted.to_json()))
    tx.put(Table.MANIFESTS, key, new_row)
    change = size_of(evicted, len(new_row))
    change.add(size_of(manifest, len(row)), -1)
    return change


def _delete_chunks(tx: Transaction, key: bytes) -> None:
    if not has_form(Table.MANIFESTS, key):  # as a spoilt one: it may begin those of others
        return
    for chunk in [found for found, _ in tx.scan_sizes(Table.CHUNKS, prefix=key)]:
        tx.delete(Table.CHUNKS, chunk)


def find_manifest(tx: Transaction, key: bytes) -> PacketManifest | None:
    """Return a packet's manifest, or None.

    Raises
    ------
    CorruptRecordError
        It is there and cannot be read.
    """
    row = tx.get(Table.MANIFESTS, key)
    if row is None:
        return None
    return replace(parse_manifest(row, key), refcount=tx.count_values(Table.REFERENCES, key))


def is_intact(tx: Transaction, key: bytes, token_ids: TokenIds | None = None) -> bool:
    """Say whether `copy_packet` would find every byte; the bytes themselves are not read."""
    try:
        manifest = find_manifest(tx, key)
    except CorruptRecordError:
        return False
    if manifest is None or (token_ids is not None and manifest.token_ids != tuple(token_ids)):
        return False
    chunks = list(islice(tx.scan_sizes(Table.CHUNKS, prefix=key), manifest.num_chunks))
    # that many keys, and the last is the last one's: then none between is missing
    is_complete = bool(chunks) and chunks[-1][0] == chunk_key(key, manifest.num_chunks - 1)
    return is_complete and tuple(size for _, size in chunks) == manifest.chunk_sizes


def require_tokens(manifest: PacketManifest, token_ids: TokenIds | None) -> None:
    """Make a packet that holds other tokens a miss: then two texts share one key.

    Raises
    ------
    NotFoundError
        Prefill the tokens; do not use this packet.
    """
    if token_ids is not None and manifest.token_ids != tuple(token_ids):
        raise NotFoundError(
            f"packet {manifest.packet_key} holds other tokens than those asked for; "
            "prefill them without the store"
        )


def require_held(manifest: PacketManifest) -> None:
    """Make an evicted packet a miss.

    Raises
    ------
    NotFoundError
        Prefill it again from its token ids.
    """
    if manifest.is_evicted:
        raise NotFoundError(
            f"packet {manifest.packet_key} was evicted to make room; prefill it again from its "
            "token ids, as answers do"
        )


def parse_manifest(row: bytes, key: bytes) -> PacketManifest:
    """Read the row of table ``manifests`` that lies under ``key``; references are not counted."""
    manifest = PacketManifest.from_json(unpack_json(row, f"packet {key[4:].hex()}"))
    if packet_bytes(manifest.packet_key) != key[4:]:
        raise CorruptRecordError(
            f"packet {key[4:].hex()} has the manifest of packet {manifest.packet_key}; "
            "ingest its document again"
        )
    return manifest
