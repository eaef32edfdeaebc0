"""Put damaged packets back from their token ids, and documents' embeddings from their texts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.records import make_record
from kvpacket_store.errors import KVPacketError
from kvpacket_store.store import Damage
from kvpacket_store.types import Document

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["repair_store"]


def repair_store(store: Store, damaged: Sequence[Damage]) -> None:
    """Repair what can be; what cannot stays for the next verification to name.

    Packets are prefilled again from the token ids in their manifests, else from their document's
    text. Embeddings are made again from the text. A document whose manifest or text is damaged
    keeps what it has: ingest it again.
    """
    store.packets.mend()
    loader = PacketLoader(store)
    for found in damaged:
        if found.namespace is None or not found.document_ids:
            continue
        with contextlib.suppress(KVPacketError):
            if found.packet_key is not None:
                _prefill_again(store, loader, found)
    documents = {(d.namespace, i) for d in damaged if d.namespace for i in d.document_ids}
    for namespace, document_id in sorted(documents):
        with contextlib.suppress(KVPacketError):
            _embed_again(store, namespace, document_id)
    store.packets.mend()
    store.packets.gc()


def _prefill_again(store: Store, loader: PacketLoader, found: Damage) -> None:
    key, namespace = found.packet_key or "", found.namespace or ""
    if store.packets.has_packet(namespace, key) and not _is_unreadable(store, namespace, key):
        return
    token_ids = loader.token_ids(namespace, key, found.document_ids[0])
    body = store.prefiller.segment(token_ids)
    store.packets.replace_record(namespace, make_record(store, key, token_ids, body))


def _is_unreadable(store: Store, namespace: str, key: str) -> bool:
    from kvpacket_store.codec import decode
    from kvpacket_store.packet import kv_digest

    try:
        manifest = store.packets.get_manifest(namespace, key)
        return kv_digest(*decode(store.packets.read_record(namespace, key))) != manifest.kv_digest
    except KVPacketError:
        return True


def _embed_again(store: Store, namespace: str, document_id: str) -> None:
    """Write a document's embeddings anew where they are not all there."""
    manifest = store.packets.get_document(namespace, document_id)
    if store.packets.has_embeddings(namespace, manifest):
        return
    text = store.packets.document_text(namespace, document_id)
    segments = store.segments(Document(document_id, text, manifest.metadata))
    vectors = store.embedder.embed([segment.text for segment in segments])
    rows = [vector.astype("<f4").tobytes() for vector in vectors]
    store.packets.put_document(namespace, replace(manifest, text=text), {}, rows)
