"""What a store finds for a question, as frameworks want it: text, metadata, score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvpacket_store.api import Engine
from kvpacket_store.api.selection import metadata_test
from kvpacket_store.errors import NotFoundError

__all__ = ["FoundSegment", "find_segments"]


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """One segment, and the metadata of its document.

    ``metadata`` has ``document_id``, ``segment``, ``packet_key`` and ``score`` beside the
    document's own: by these its packet is found again.
    """

    id: str
    text: str
    metadata: dict[str, Any]
    score: float


def find_segments(
    engine: Engine,
    namespace: str,
    query: str,
    top_k: int,
    where: Mapping[str, Any] | None = None,
) -> list[FoundSegment]:
    """Return the segments nearest to a query, best first; a document just deleted is left out.

    Raises
    ------
    UsageError
        ``top_k`` is below 1, or ``where`` is malformed.
    """
    packets = engine.store.packets
    keep = metadata_test(engine.store, namespace, where) if where else None
    found = []
    for hit in engine.retriever.retrieve(query, namespace, top_k, keep):
        try:
            manifest = packets.get_document(namespace, hit.document_id)
            text = packets.document_text(namespace, hit.document_id)
        except NotFoundError:
            continue
        segment = next(iter(manifest.segments[hit.segment_index :]), None)
        if segment is None or segment.packet_key != hit.packet_key:
            continue  # the document has changed since
        extra = {
            "document_id": hit.document_id,
            "segment": hit.segment_index,
            "packet_key": hit.packet_key,
            "score": hit.score,
        }
        found.append(
            FoundSegment(
                f"{hit.document_id}#{hit.segment_index}",
                text[segment.start_char : segment.end_char],
                {**manifest.metadata, **extra},
                hit.score,
            )
        )
    return found
