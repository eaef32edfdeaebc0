"""Layers of packets copied out of LMDB's memory, then checked outside the transaction."""

from __future__ import annotations

import xxhash

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store.packet_manifest import PacketManifest, StoredPacket
from kvpacket_store.store.packets import cut
from kvpacket_store.store.schema import Table, chunk_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["copy_layer", "copy_packet", "require_checksums", "require_layer"]


def copy_packet(
    tx: Transaction, key: bytes, manifest: PacketManifest, *, base_only: bool = False
) -> StoredPacket:
    """Copy a packet out of LMDB's memory. Check it with `require_checksums` afterwards.

    ``base_only`` looks at no chunk of the enhancement.

    Raises
    ------
    CorruptRecordError
        A chunk is missing or has another length.
    """
    record = copy_layer(tx, key, manifest, 0) if manifest.num_records else b""
    if base_only or manifest.num_records < 2:
        return StoredPacket(manifest, record)
    return StoredPacket(manifest, record, copy_layer(tx, key, manifest, 1))


def copy_layer(tx: Transaction, key: bytes, manifest: PacketManifest, layer: int) -> bytes:
    """Copy one layer out of LMDB's memory; errors as `copy_packet`, and no other chunk is seen.

    Check it with `require_layer` afterwards.
    """
    sizes = manifest.chunk_sizes
    views: list[memoryview] = []
    try:
        for index in manifest.layer_chunks(layer):
            view = tx.view(Table.CHUNKS, chunk_key(key, index))
            if view is None:
                raise _damaged(manifest, index, "is missing")
            views.append(view)
            if len(view) != sizes[index]:
                raise _damaged(manifest, index, f"has {len(view)} bytes instead of {sizes[index]}")
        return b"".join(views)
    finally:
        for view in views:
            view.release()


def require_checksums(packet: StoredPacket) -> StoredPacket:
    """Check a copied packet, chunk by chunk, and return it.

    Raises
    ------
    CorruptRecordError
        The bytes are not those that were stored; prefill the packet again.
    """
    for layer, data in enumerate((packet.record, packet.enhancement)):
        if data:
            require_layer(packet.manifest, layer, data)
    return packet


def require_layer(manifest: PacketManifest, layer: int, data: bytes) -> None:
    """Check one layer that was copied; errors as `require_checksums`."""
    chunks = cut([memoryview(data)], manifest.chunk_bytes)
    for index, chunk in zip(manifest.layer_chunks(layer), chunks, strict=True):
        if xxhash.xxh3_64_hexdigest(chunk) != manifest.chunk_checksums[index]:
            raise _damaged(manifest, index, "does not match its checksum")


def _damaged(manifest: PacketManifest, chunk_index: int, what: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"packet {manifest.packet_key}: chunk {chunk_index} {what}; "
        "prefill it again from its token ids: answers do, and so does `kvps verify --deep --repair`"
    )
