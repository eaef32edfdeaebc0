"""Whether a document is whole in the store: what is not is made again by an ingest of it."""

from __future__ import annotations

from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store import DocumentManifest, PacketStore
from kvpacket_store.types import TokenIds

__all__ = ["has_all_parts", "is_there", "is_whole"]


def is_whole(packets: PacketStore, namespace: str, document_id: str) -> bool:
    """Whether a document is there with its text, embeddings and packets."""
    try:
        manifest = packets.get_document(namespace, document_id)
    except (NotFoundError, CodecError):
        return False
    return has_all_parts(packets, namespace, manifest)


def has_all_parts(packets: PacketStore, namespace: str, manifest: DocumentManifest) -> bool:
    """Whether what a document's manifest names is there."""
    try:
        packets.document_text(namespace, manifest.id)
    except (NotFoundError, CodecError):
        return False
    has_embeddings = packets.has_embeddings(namespace, manifest)
    return has_embeddings and all(is_there(packets, namespace, key) for key in manifest.packet_keys)


def is_there(
    packets: PacketStore, namespace: str, packet_key: str, token_ids: TokenIds | None = None
) -> bool:
    """Whether a packet is there and of these tokens: a collision of keys is a miss.

    One that was evicted counts as there: an answer that needs it makes it again, and an ingest
    that did so would evict others for it.
    """
    if packets.has_packet(namespace, packet_key, token_ids):
        return True
    try:
        found = packets.get_manifest(namespace, packet_key)
    except (NotFoundError, CodecError):
        return False
    return found.is_evicted and token_ids in (None, found.token_ids)
