"""A step of an ingestion pipeline: nodes are prefilled and filed in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, TransformComponent

from kvpacket_store.api import DEFAULT_NAMESPACE
from kvpacket_store.integrations.llama_index.nodes import EngineField, file_nodes

__all__ = ["KVPacketPrefill"]


class KVPacketPrefill(TransformComponent):
    """Files each node as a document under the node's id; the nodes go on as they are.

    Put it behind what splits. What is stored already prefills nothing. With a
    `KVPacketVectorStore` in the pipeline, nodes of a source that changed or is gone are deleted.

    Parameters
    ----------
    engine : Engine
        Over a store that can be written.
    namespace : str
        Whose documents.

    Examples
    --------
    ::

        pipeline = IngestionPipeline(
            transformations=[SentenceSplitter(chunk_size=256), KVPacketPrefill(engine=engine)],
            docstore=KVPacketDocumentStore(engine.store),
            vector_store=KVPacketVectorStore(engine=engine),
        )
        pipeline.run(documents=documents)
    """

    engine: EngineField
    namespace: str = DEFAULT_NAMESPACE

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """File nodes.

        Raises
        ------
        IncompleteUpsertError
            Some could not be filed. The others are.
        """
        del kwargs
        file_nodes(self.engine.get().store, self.namespace, nodes)
        return nodes

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """As a call, on a thread."""
        return await asyncio.to_thread(self, nodes, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes it under."""
        return "KVPacketPrefill"
