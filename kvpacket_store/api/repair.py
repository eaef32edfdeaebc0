"""Put damaged packets back from their token ids, and documents' embeddings from their texts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvpacket_store.api.codec_packs import keep_within_cap
from kvpacket_store.api.importance import wanted_importance
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.records import make_record
from kvpacket_store.errors import (
    CapReachedError,
    CodecError,
    NotFoundError,
    StoreCorruptError,
    UsageError,
)
from kvpacket_store.store import Damage
from kvpacket_store.types import Document

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["repair_store"]

# One finding is beyond repair, the others go on; a full disk or a missing model ends all.
_BEYOND_REPAIR = (CodecError, NotFoundError, StoreCorruptError, UsageError)


def repair_store(store: Store, damaged: Sequence[Damage]) -> None:
    """Repair what can be; what cannot stays for the next verification to name.

    A lost codec pack comes back where it is one that ships. Packets are prefilled again from the
    token ids in their manifests, else from their document's text. Embeddings are made again from
    the text. A document whose manifest or text is damaged keeps what it has: ingest it again.

    Raises
    ------
    ModelError
        The model is needed and is not to be had.
    StoreFullError, ReadOnlyError
        Nothing can be written.
    """
    store.packets.mend()
    with contextlib.suppress(*_BEYOND_REPAIR, CapReachedError):
        if (pack := store.codec_pack) is not None:  # where one of that digest ships; it serves
            keep_within_cap(store, pack)
    loader = PacketLoader(store)
    for found in damaged:
        if found.namespace is not None and found.document_ids and found.packet_key is not None:
            with contextlib.suppress(*_BEYOND_REPAIR):
                _prefill_again(store, loader, found.namespace, found.packet_key, found)
    documents = {(d.namespace, i) for d in damaged if d.namespace for i in d.document_ids}
    for namespace, document_id in sorted(documents):
        with contextlib.suppress(*_BEYOND_REPAIR):
            _embed_again(store, namespace, document_id)
    store.packets.mend()
    store.packets.gc()


def _prefill_again(
    store: Store, loader: PacketLoader, namespace: str, key: str, found: Damage
) -> None:
    token_ids = loader.token_ids(namespace, key, found.document_ids[0])
    body = store.prefiller.segment(token_ids)
    importance = wanted_importance(store, body, token_ids)
    record = make_record(store, key, token_ids, body, importance=importance)
    store.packets.replace_record(namespace, record)


def _embed_again(store: Store, namespace: str, document_id: str) -> None:
    """Write a document's embeddings anew where they are not all there."""
    manifest = store.packets.get_document(namespace, document_id)
    if store.packets.has_embeddings(namespace, manifest):
        return
    text = store.packets.document_text(namespace, document_id)
    segments = store.segments(Document(document_id, text, manifest.metadata))
    vectors = store.embedder.embed([segment.text for segment in segments])
    rows = [vector.astype("<f4").tobytes() for vector in vectors]
    store.packets.put_embeddings(namespace, manifest, rows)  # not if it has changed meanwhile
