"""Made-up documents and records, the same at each call: for tests of stores and for benchmarks.

A record's bytes follow from its packet key, so that whoever reads one can tell whether it is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from kvpacket_store.store.manifests import DocumentManifest, DocumentWrite, SegmentRef
from kvpacket_store.store.meta import StoreMeta
from kvpacket_store.store.packet_manifest import PacketRecord

__all__ = ["make_meta", "make_record", "make_write", "record_bytes"]

_CHARS_PER_SEGMENT = 100


def make_meta(**changes: Any) -> StoreMeta:
    """Return the description of a store for no model in particular."""
    values: dict[str, Any] = {
        "model": "synthetic",
        "fingerprint": {"weights": "0" * 64},
        "layout": {"num_layers": 1},
        "rope": (),
        "adapter": None,
        "adapter_digest": "none",
        "codec": "raw",
        "layers": 1,
        "kv_dtype": "bf16",
        "recipe": "alone-1",
        "segment_tokens": 512,
        "max_bytes": None,
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return StoreMeta(**values | changes)


def record_bytes(packet_key: str, num_bytes: int) -> bytes:
    """Return the bytes that belong to a packet key.

    Examples
    --------
    >>> record_bytes("a", 3) == record_bytes("a", 5)[:3]
    True
    """
    return hashlib.shake_256(packet_key.encode("ascii")).digest(num_bytes)


def make_record(
    name: str,
    num_bytes: int = 1000,
    num_tokens: int = 8,
    *,
    enhancement_bytes: int | None = None,
    importance_bytes: int | None = None,
) -> PacketRecord:
    """Return the packet of a made-up segment called ``name``; with an enhancement in two layers."""
    packet_key = hashlib.sha256(name.encode()).hexdigest()

    def beside(what: str, size_bytes: int | None) -> bytes | None:
        return None if size_bytes is None else record_bytes(f"{packet_key} {what}", size_bytes)

    seed = int.from_bytes(bytes.fromhex(packet_key)[:2], "big")
    return PacketRecord(
        packet_key=packet_key,
        record=record_bytes(packet_key, num_bytes),
        token_ids=tuple(range(seed, seed + num_tokens)),
        positions=num_tokens + 16,
        raw_bytes=2 * num_bytes,
        kv_digest=packet_key[::-1],
        engine="synthetic",
        enhancement=beside("enhancement", enhancement_bytes),
        importance=beside("importance", importance_bytes),
    )


def make_write(
    document_id: str, records: Sequence[PacketRecord], *, embedding_dim: int = 4, version: int = 0
) -> DocumentWrite:
    """Return a document of one segment a record, with its records and embeddings."""
    segments = tuple(
        SegmentRef(
            packet_key=record.packet_key,
            tokens=len(record.token_ids),
            start_char=_CHARS_PER_SEGMENT * index,
            end_char=_CHARS_PER_SEGMENT * (index + 1),
        )
        for index, record in enumerate(records)
    )
    manifest = DocumentManifest(
        id=document_id,
        content_hash=hashlib.sha256(repr(segments).encode()).hexdigest(),
        metadata_hash=f"metadata {version}",
        metadata={"version": version},
        segments=segments,
        text=f"{document_id} {version} ".ljust(_CHARS_PER_SEGMENT * len(segments), "."),
    )
    embeddings = [bytes.fromhex(record.packet_key)[:4] * embedding_dim for record in records]
    return DocumentWrite(manifest, {r.packet_key: r for r in records}, embeddings)
