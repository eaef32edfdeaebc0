"""A store as LangChain's document index: upsert, delete, get and retrieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document as LCDocument
from langchain_core.indexing import DeleteResponse, DocumentIndex, UpsertResponse
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine
from kvpacket_store.errors import IncompleteUpsertError, NotFoundError
from kvpacket_store.integrations.filing import content_id, file_documents
from kvpacket_store.integrations.langchain.documents import to_langchain
from kvpacket_store.integrations.retrieval import find_segments
from kvpacket_store.types import Document

__all__ = ["KVPacketIndex"]


class KVPacketIndex(DocumentIndex):
    """Files LangChain documents in a store, each under its id, and retrieves their segments.

    Parameters
    ----------
    engine : Engine
        Over a store that can be written.
    k : int
        How many segments to retrieve; ``invoke`` takes another number too.
    namespace : str
        Whose documents.

    Text decides which packets are prefilled, metadata none. ``title`` and ``media_type`` in the
    metadata belong to the text: see `Document`. With `KVPacketRecordManager`, LangChain's
    ``index()`` files only what is new, and deletes what is gone.

    Examples
    --------
    ::

        index = KVPacketIndex(engine=engine)
        index.upsert(splits)
        index.invoke("Where does the Rhine rise?", k=3)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: Engine
    k: int = 5
    namespace: str = DEFAULT_NAMESPACE

    def upsert(self, items: Sequence[LCDocument], /, **kwargs: Any) -> UpsertResponse:
        """File documents; one without an id gets one that its text and metadata make.

        Raises
        ------
        IncompleteUpsertError
            Some could not be filed: LangChain's ``index()`` does not look at ``failed``. The
            error has ``succeeded`` and ``failed``; what succeeded stays filed.
        StoreFullError, ReadOnlyError
            The store takes nothing more, or nothing at all.
        """
        del kwargs
        documents: dict[str, Document] = {}
        repeated: dict[str, str] = {}
        for item in items:
            document = _document(item)
            if documents.get(document.id, document) != document:
                repeated[document.id] = "stands for two documents of this upsert"
            documents[document.id] = document
        for document_id in repeated:
            del documents[document_id]
        try:
            file_documents(self.engine.store, self.namespace, documents.values())
        except IncompleteUpsertError as error:
            raise IncompleteUpsertError(error.succeeded, error.failed | repeated) from None
        if repeated:
            raise IncompleteUpsertError(list(documents), repeated)
        return UpsertResponse(succeeded=list(documents), failed=[])

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents, and the packets that no other document shares.

        Raises
        ------
        ValueError
            Nothing is named.
        """
        del kwargs
        if ids is None:
            raise ValueError("name the ids to delete; to delete all, list them first")
        deleted = []
        for document_id in dict.fromkeys(ids):
            try:
                self.engine.store.delete(document_id, namespace=self.namespace)
            except NotFoundError:
                continue
            deleted.append(document_id)
        return DeleteResponse(num_deleted=len(deleted), succeeded=deleted, num_failed=0, failed=[])

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[LCDocument]:
        """Return the documents that are there, in the order asked for, each once."""
        del kwargs
        packets, found = self.engine.store.packets, []
        for document_id in dict.fromkeys(ids):
            try:
                manifest = packets.get_document(self.namespace, document_id)
                text = packets.document_text(self.namespace, document_id)
            except NotFoundError:
                continue
            found.append(
                LCDocument(id=document_id, page_content=text, metadata=dict(manifest.metadata))
            )
        return found

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LCDocument]:
        del run_manager
        found = find_segments(self.engine, self.namespace, query, self.k if k is None else k)
        return [to_langchain(segment) for segment in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LCDocument]:
        retrieve = partial(self._get_relevant_documents, run_manager=run_manager.get_sync(), k=k)
        return await run_in_executor(None, retrieve, query)


def _document(item: LCDocument) -> Document:
    document = Document(item.id or "", item.page_content, item.metadata)
    return document if item.id else replace(document, id=content_id(document))
