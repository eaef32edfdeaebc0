"""Embeddings inside a transaction: ``xxh3 | packet key | float32 values``, one row a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import xxhash

from kvpacket_store.errors import DocumentError
from kvpacket_store.store.document_ids import document_id_of
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.schema import Table, embedding_key, packet_bytes
from kvpacket_store.store.transaction import Transaction

__all__ = [
    "EmbeddingRow",
    "delete_embeddings",
    "every_embedding",
    "has_embeddings",
    "is_embedding_of",
    "prepare_embeddings",
    "write_embeddings",
]

EmbeddingRow: TypeAlias = tuple[str, int, str, bytes]
"""``(document_id, segment_index, packet_key, embedding)``."""

_CHECKSUM_BYTES = 8
_HEAD_BYTES = _CHECKSUM_BYTES + 32


def prepare_embeddings(
    manifest: DocumentManifest, embeddings: Sequence[bytes] | None
) -> tuple[bytes, ...]:
    """Return the rows of a document's segments, in order; none where there are no embeddings.

    Raises
    ------
    DocumentError
        Not one for each segment, or not float32 values of one length.
    """
    if embeddings is None:
        return ()
    if len(embeddings) != len(manifest.segments):
        raise DocumentError(
            manifest.id,
            f"{len(embeddings)} embeddings for {len(manifest.segments)} segments; pass one each",
        )
    lengths = {len(embedding) for embedding in embeddings}
    if len(lengths) > 1 or any(not length or length % 4 for length in lengths):
        raise DocumentError(
            manifest.id, f"embeddings of {sorted(lengths)} bytes; pass float32 values of one length"
        )
    return tuple(
        _row(packet_bytes(segment.packet_key) + bytes(embedding))
        for segment, embedding in zip(manifest.segments, embeddings, strict=True)
    )


def write_embeddings(tx: Transaction, document: bytes, rows: Sequence[bytes]) -> None:
    """Write a document's rows; `delete_embeddings` first where there may be others."""
    for index, row in enumerate(rows):
        tx.put(Table.EMBEDDINGS, embedding_key(document, index), row)


def delete_embeddings(tx: Transaction, document: bytes) -> None:
    """Delete a document's rows."""
    index = 0
    while tx.delete(Table.EMBEDDINGS, embedding_key(document, index)):
        index += 1


def every_embedding(tx: Transaction, namespace_id: int) -> Iterator[EmbeddingRow]:
    """Yield a namespace's embeddings, each document's segments in order.

    A damaged row is left out: its segment is not retrieved until its document is ingested again,
    which is better than nothing being retrieved. `has_embeddings` and `check` name it.
    """
    prefix = namespace_id.to_bytes(4, "big")
    for key, row in tx.scan(Table.EMBEDDINGS, prefix=prefix):
        packet_key = row[_CHECKSUM_BYTES:_HEAD_BYTES].hex()
        if is_embedding_of(row, packet_key):
            document_id = document_id_of(tx, key[:-4])
            yield document_id, int.from_bytes(key[-4:], "big"), packet_key, row[_HEAD_BYTES:]


def has_embeddings(tx: Transaction, document: bytes, packet_keys: Sequence[str]) -> bool:
    """Say whether a document has a whole embedding for each of its segments."""
    rows = (tx.get(Table.EMBEDDINGS, embedding_key(document, i)) for i in range(len(packet_keys)))
    return all(
        row is not None and is_embedding_of(row, key)
        for row, key in zip(rows, packet_keys, strict=True)
    )


def is_embedding_of(row: bytes, packet_key: str) -> bool:
    """Say whether a row is whole, and this packet's."""
    return (
        len(row) > _HEAD_BYTES
        and row == _row(row[_CHECKSUM_BYTES:])
        and row[_CHECKSUM_BYTES:_HEAD_BYTES].hex() == packet_key
    )


def _row(rest: bytes) -> bytes:
    return xxhash.xxh3_64_digest(rest) + rest
