"""LangChain's documents ↔ what an engine takes and a store gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from langchain_core.documents import Document as LCDocument

from kvpacket_store.api import Store
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.integrations.matching import ForeignText, items_of
from kvpacket_store.integrations.retrieval import RetrievedSegment

__all__ = ["AnyDocument", "to_items", "to_langchain"]

AnyDocument: TypeAlias = DocumentItem | LCDocument


def to_items(store: Store, namespace: str, documents: Iterable[AnyDocument]) -> list[DocumentItem]:
    """Return LangChain documents as texts by content; what an engine takes anyway stays."""
    foreign = (
        ForeignText(document.page_content, document.metadata, document.id)
        if isinstance(document, LCDocument)
        else document
        for document in documents
    )
    return items_of(store, namespace, foreign)


def to_langchain(found: RetrievedSegment) -> LCDocument:
    """Return a segment that was found as LangChain's document."""
    return LCDocument(id=found.id, page_content=found.text, metadata=found.metadata)
