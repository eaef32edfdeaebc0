"""From a question to packet keys: embed, search one namespace's index, name the best segments.

The index is derived data. Everything in it can be had again from the source of the embeddings, so
a snapshot that is stale, foreign or damaged is rebuilt, never trusted.
"""

from __future__ import annotations

from kvpacket_store.retrieve.embedder import MiniLMEmbedder, SentenceEmbedder
from kvpacket_store.retrieve.index import Hit, PacketIndex
from kvpacket_store.retrieve.metadata_filter import MetadataFilter
from kvpacket_store.retrieve.retriever import Retriever
from kvpacket_store.retrieve.source import EmbeddingRow, EmbeddingSource

__all__ = [
    "EmbeddingRow",
    "EmbeddingSource",
    "Hit",
    "MetadataFilter",
    "MiniLMEmbedder",
    "PacketIndex",
    "Retriever",
    "SentenceEmbedder",
]
