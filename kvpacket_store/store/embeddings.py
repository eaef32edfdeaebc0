"""Embeddings inside a transaction: ``xxh3 | packet key | float32 values``, one row a segment."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from kvpacket_store.errors import DocumentError
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.schema import Table, embedding_key, packet_bytes
from kvpacket_store.store.transaction import Transaction

__all__ = [
    "delete_embeddings",
    "embedding_keys",
    "has_embeddings",
    "is_embedding_of",
    "prepare_embeddings",
    "read_embedding",
    "write_embeddings",
]

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
    """Delete a document's rows, all of them: one that is lost between them hides none."""
    for key in embedding_keys(tx, document):
        tx.delete(Table.EMBEDDINGS, key)


def embedding_keys(tx: Transaction, document: bytes) -> list[bytes]:
    """Return the keys of a document's rows, those of segments that it does not have included."""
    # No document has 2^24 segments, so its keys go on with 0; those of longer ids hardly ever do.
    rows = tx.scan_sizes(Table.EMBEDDINGS, prefix=document + b"\x00")
    return [key for key, _ in rows if len(key) == len(document) + 4]


def read_embedding(tx: Transaction, document: bytes, index: int, packet_key: str) -> bytes | None:
    """Return the float32 values of a segment; None where there are none, or they are damaged."""
    row = tx.get(Table.EMBEDDINGS, embedding_key(document, index))
    return row[_HEAD_BYTES:] if row is not None and is_embedding_of(row, packet_key) else None


def has_embeddings(tx: Transaction, document: bytes, packet_keys: Sequence[str]) -> bool:
    """Say whether a document has a whole embedding for each of its segments."""
    return all(
        read_embedding(tx, document, index, key) is not None
        for index, key in enumerate(packet_keys)
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
