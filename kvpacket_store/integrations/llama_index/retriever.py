"""A store's segments, retrieved as LlamaIndex nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine
from kvpacket_store.integrations.handles import EngineHandle
from kvpacket_store.integrations.llama_index.nodes import to_node
from kvpacket_store.integrations.retrieval import find_segments

__all__ = ["KVPacketRetriever"]


class KVPacketRetriever(BaseRetriever):
    """Retrieves segments of a store as nodes.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    similarity_top_k : int
        How many segments.
    where : mapping, optional
        Metadata that their documents must have.
    namespace : str
        Whose documents.
    callback_manager : CallbackManager, optional
        LlamaIndex's.

    Nodes have the segment's text and the metadata of their document, with ``document_id``,
    ``segment``, ``packet_key`` and ``score`` beside it; their source is the document.

    Examples
    --------
    ::

        nodes = KVPacketRetriever(engine, similarity_top_k=3).retrieve("Where does the Rhine rise?")
    """

    def __init__(
        self,
        engine: Engine,
        *,
        similarity_top_k: int = 5,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._engine = EngineHandle.of(engine)
        self._top_k = similarity_top_k
        self._where = where
        self._namespace = namespace
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        engine, query = self._engine.get(), query_bundle.query_str
        found = find_segments(engine, self._namespace, query, self._top_k, self._where)
        return [to_node(segment) for segment in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
