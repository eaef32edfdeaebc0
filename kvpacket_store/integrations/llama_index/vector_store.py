"""A store as LlamaIndex's vector store: it embeds and retrieves by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine
from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.llama_index.filters import where_of
from kvpacket_store.integrations.llama_index.nodes import (
    EngineField,
    delete_nodes,
    delete_source,
    file_nodes,
    to_node,
)
from kvpacket_store.integrations.retrieval import find_segments

__all__ = ["KVPacketVectorStore"]


class KVPacketVectorStore(BasePydanticVectorStore):
    """Files nodes as documents, deletes those of a source, and finds segments for a question.

    Vectors that nodes bring are not used: the store embeds with its own model, and searches for
    the text of the question.

    Parameters
    ----------
    engine : Engine
        Over a store that can be written.
    namespace : str
        Whose documents.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    engine: EngineField
    namespace: str = DEFAULT_NAMESPACE

    @property
    def client(self) -> Engine:
        """The engine."""
        engine: Engine = self.engine.get()
        return engine

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """File nodes under their ids.

        Raises
        ------
        IncompleteUpsertError
            Some could not be filed. The others are.
        """
        del kwargs
        file_nodes(self.client.store, self.namespace, nodes)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes that are from this source."""
        del delete_kwargs
        delete_source(self.client.store, self.namespace, ref_doc_id)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id.

        Raises
        ------
        UsageError
            Filters are given.
        """
        del delete_kwargs
        if filters is not None:
            raise UsageError("nodes are deleted by id or by source here, not by filters")
        delete_nodes(self.client.store, self.namespace, node_ids or ())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the segments nearest to the question's text.

        Raises
        ------
        UsageError
            There is no text, or a filter is none that the store knows: equal, in, and.
        """
        del kwargs
        if query.query_str is None:
            raise UsageError("a query needs its text: vectors of other models say nothing here")
        where = where_of(query.filters)
        top_k = query.similarity_top_k
        found = find_segments(self.client, self.namespace, query.query_str, top_k, where)
        nodes = [to_node(segment) for segment in found]
        return VectorStoreQueryResult(
            nodes=[node.node for node in nodes],
            similarities=[segment.score for segment in found],
            ids=[segment.id for segment in found],
        )

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As `add`, on a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """As `delete`, on a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """As `delete_nodes`, on a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As `query`, on a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes it under."""
        return "KVPacketVectorStore"
