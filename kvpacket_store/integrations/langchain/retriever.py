"""A store's segments, retrieved as LangChain documents."""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document as LCDocument
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine
from kvpacket_store.integrations.langchain.documents import to_langchain
from kvpacket_store.integrations.retrieval import find_segments

__all__ = ["KVPacketRetriever"]


class KVPacketRetriever(BaseRetriever):
    """Retrieves segments of a store as LangChain documents.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    k : int
        How many segments; ``invoke`` takes another number too.
    where : mapping, optional
        Metadata that their documents must have.
    namespace : str
        Whose documents.

    Returned documents have the segment's text and the metadata of their document, with
    ``document_id``, ``segment``, ``packet_key`` and ``score`` beside it.

    Examples
    --------
    ::

        documents = KVPacketRetriever(engine=engine, k=3).invoke("Where does the Rhine rise?")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: Engine
    k: int = 5
    where: dict[str, Any] | None = None
    namespace: str = DEFAULT_NAMESPACE

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LCDocument]:
        del run_manager
        top_k = self.k if k is None else k
        found = find_segments(self.engine, self.namespace, query, top_k, self.where)
        return [to_langchain(segment) for segment in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LCDocument]:
        retrieve = partial(self._get_relevant_documents, run_manager=run_manager.get_sync(), k=k)
        return await run_in_executor(None, retrieve, query)
