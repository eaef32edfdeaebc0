"""LangChain's documents ↔ what an engine takes and a store gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from langchain_core.documents import Document as LCDocument

from kvpacket_store.api import Engine
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.integrations.matching import given_text, packet_place
from kvpacket_store.integrations.retrieval import FoundSegment

__all__ = ["AnyDocument", "to_items", "to_langchain"]

AnyDocument: TypeAlias = DocumentItem | LCDocument


def to_items(
    engine: Engine, namespace: str, documents: Iterable[AnyDocument]
) -> list[DocumentItem]:
    """Return LangChain documents as texts by content; what an engine takes anyway stays.

    Those that `KVPacketRetriever` gave are taken by their packets, all of one document together.
    Blank ones are left out.
    """
    items: list[DocumentItem] = []
    segments: dict[str, list[int]] = {}
    for document in documents:
        if not isinstance(document, LCDocument):
            items.append(document)
            continue
        place = packet_place(engine.store, namespace, document.metadata)
        if place is not None:
            if place[0] not in segments:
                segments[place[0]] = []
                items.append((place[0], segments[place[0]]))
            segments[place[0]].append(place[1])
        elif document.page_content.strip():
            text, metadata = document.page_content, document.metadata
            items.append(given_text(engine.store, namespace, text, metadata, document.id))
    return items


def to_langchain(found: FoundSegment) -> LCDocument:
    """Return a segment that was found as LangChain's document."""
    return LCDocument(id=found.id, page_content=found.text, metadata=found.metadata)
