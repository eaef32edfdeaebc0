"""Which tokens a packet is of: a packet that is lost is made again from them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kvpacket_store.errors import CodecError, NotFoundError, StoreCorruptError
from kvpacket_store.types import Document, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["packet_tokens"]

_UNUSABLE = (CodecError, NotFoundError, StoreCorruptError)


def packet_tokens(store: Store, namespace: str, key: str, document_id: str) -> TokenIds:
    """Return a packet's tokens from its manifest, else from its document's text.

    Raises
    ------
    NotFoundError
        The document has changed and the packet is no longer its own.
    StoreCorruptError
        Neither gives them; ingest the document again.
    """
    prefiller = store.prefiller
    with contextlib.suppress(*_UNUSABLE):
        token_ids = store.packets.get_manifest(namespace, key).token_ids
        if prefiller.segment_key(token_ids) == key:
            return token_ids
    manifest = store.packets.get_document(namespace, document_id)
    if key not in manifest.packet_keys:
        raise NotFoundError(
            f"document {document_id!r} has changed and packet {key[:12]} is no longer its own"
        )
    text = store.packets.document_text(namespace, document_id)
    segments = store.segments(Document(document_id, text, manifest.metadata))
    for segment in segments:
        if prefiller.segment_key(segment.token_ids) == key:
            return segment.token_ids
    # another recipe or format gives the tokens another key; where they lie stays the same
    spans = {(r.start_char, r.end_char, r.tokens) for r in manifest.segments_of(key)}
    for segment in segments:
        if (segment.start_char, segment.end_char, len(segment.token_ids)) in spans:
            return segment.token_ids
    raise StoreCorruptError(
        f"packet {key[:12]} of document {document_id!r} cannot be read, and the document's "
        "text does not give it; ingest the document again"
    )
