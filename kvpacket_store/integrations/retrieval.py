"""What a store finds for a question, as frameworks want it: text, metadata, score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvpacket_store.api import Engine

__all__ = ["RetrievedSegment", "find_segments"]


@dataclass(frozen=True, slots=True)
class RetrievedSegment:
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
) -> list[RetrievedSegment]:
    """Return the segments nearest to a query, best first; a document just deleted is left out.

    Raises
    ------
    UsageError
        ``top_k`` is below 1, or ``where`` is malformed.
    """
    return [
        RetrievedSegment(
            f"{found.id}#{found.segment}",
            found.text,
            {
                **found.metadata,
                "document_id": found.id,
                "segment": found.segment,
                "packet_key": found.packet_key,
                "score": found.score,
            },
            found.score,
        )
        for found in engine.lookup(query, top_k=top_k, where=where, namespace=namespace)
    ]
