"""Segments that fit a question, with their text; nothing is generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.arguments import is_count, says_something
from kvpacket_store.api.selection import DEFAULT_TOP_K, metadata_test
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.retrieve import Hit, Retriever

__all__ = ["FoundSegment", "find_segments"]


@dataclass(frozen=True, slots=True)
class FoundSegment(Report):
    """A segment that a lookup found.

    Parameters
    ----------
    id : str
        Of its document.
    score : float
        Cosine similarity with the question, 1 for the same direction.
    segment : int
        Its place in the document, from 0.
    packet_key : str
        Of its packet.
    tokens : int
        Of the segment.
    text : str
        The segment's.
    metadata : mapping
        The document's.
    """

    id: str
    score: float
    segment: int
    packet_key: str
    tokens: int
    text: str
    metadata: Mapping[str, Any]


def find_segments(
    store: Store,
    retriever: Retriever,
    question: str,
    *,
    top_k: int | None,
    where: Mapping[str, Any] | None,
    namespace: str,
) -> list[FoundSegment]:
    """Return the segments nearest to a question, best first; see `Engine.lookup`."""
    if not says_something(question):
        raise UsageError("the question is empty; ask something")
    top_k = DEFAULT_TOP_K if top_k is None else top_k
    if not is_count(top_k):
        raise UsageError(f"top_k is {top_k!r}; ask for a whole number of at least 1")
    keep = metadata_test(store, namespace, where) if where else None
    hits = retriever.retrieve(question, namespace, top_k, keep)
    found = (_found(store, namespace, hit) for hit in hits)
    return [segment for segment in found if segment is not None]


def _found(store: Store, namespace: str, hit: Hit) -> FoundSegment | None:
    """Return what was hit; None where the document has changed since the index was made."""
    try:
        manifest = store.packets.get_document(namespace, hit.document_id)
        text = store.packets.document_text(namespace, hit.document_id)
    except NotFoundError:
        return None
    segment = next(iter(manifest.segments[hit.segment_index :]), None)
    if segment is None or segment.packet_key != hit.packet_key:
        return None
    return FoundSegment(
        hit.document_id,
        hit.score,
        hit.segment_index,
        hit.packet_key,
        segment.tokens,
        text[segment.start_char : segment.end_char],
        dict(manifest.metadata),
    )
