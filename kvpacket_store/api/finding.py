"""The part of an `Engine` that finds documents and brings them near, and decodes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.lookup import FoundSegment, find_segments
from kvpacket_store.api.prefetch import Prefetch, PrefetchReport
from kvpacket_store.api.selection import Query, SelectedDocument, select
from kvpacket_store.api.store import DEFAULT_NAMESPACE, Store
from kvpacket_store.errors import UsageError
from kvpacket_store.memory import MemoryTier
from kvpacket_store.prefill import BodyKV
from kvpacket_store.retrieve import Retriever

if TYPE_CHECKING:
    from kvpacket_store.api.selection import DocumentItem

__all__ = ["Finding"]


class Finding:
    """Retrieval over a store, and the RAM tier. A part of `Engine`."""

    store: Store
    memory: MemoryTier[BodyKV]

    def __init__(self, store: Store, memory: MemoryTier[BodyKV]) -> None:
        self.store, self.memory = store, memory
        self._retriever: Retriever | None = None
        self._making_retriever = threading.Lock()

    @property
    def retriever(self) -> Retriever:
        """Finds segments for a question."""
        with self._making_retriever:
            if self._retriever is None:
                packets = self.store.packets
                self._retriever = Retriever(
                    packets,
                    self.store.embedder,
                    None if packets.is_read_only else self.store.path / "index",
                    wait_for_rebuild=True,  # what was acknowledged is found
                    room_bytes=packets.spare_bytes,
                )
            return self._retriever

    def lookup(
        self,
        question: str,
        *,
        top_k: int | None = None,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[FoundSegment]:
        """Return the segments that fit a question best, the best first; nothing is generated.

        Parameters
        ----------
        question : str
            Not blank.
        top_k : int, optional
            How many segments (5). A document that is deleted meanwhile is left out.
        where : mapping, optional
            Metadata that their documents must have.
        namespace : str
            Whose documents. One that nobody has filed anything in has none.

        Raises
        ------
        UsageError
            The question is empty, ``top_k`` below 1, or ``where`` malformed.
        """
        return find_segments(
            self.store, self.retriever, question, top_k=top_k, where=where, namespace=namespace
        )

    def prefetch(
        self,
        documents: Iterable[str | tuple[str, list[int]]] | None = None,
        question: str | None = None,
        *,
        top_k: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> PrefetchReport:
        """Load the packets of documents into the RAM tier, so that the next request finds them.

        Parameters
        ----------
        documents : iterable, optional
            Ids, or ``(id, [segment numbers])``.
        question : str, optional
            Retrieve the documents instead: ``top_k`` segments (5).
        namespace : str
            Whose documents.

        Returns
        -------
        PrefetchReport
            Packets beyond what ``memory_bytes`` has room for are left out.

        Raises
        ------
        NotFoundError
            A document is not in the namespace.
        UsageError
            Neither documents nor a question, or both.
        """
        chosen = self.begin_prefetch(documents, question, top_k=top_k, namespace=namespace)
        chosen.run()
        return chosen.report

    def begin_prefetch(
        self,
        documents: Iterable[DocumentItem] | None = None,
        question: str | None = None,
        *,
        top_k: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Prefetch:
        """Choose what `prefetch` loads, for another thread to run."""
        if (documents is None) == (question is None):
            raise UsageError("pass either documents, or a question to find them by")
        selected = self._selected(documents, question, top_k, namespace)
        loader = PacketLoader(self.store, self.memory)
        return Prefetch(self.store, loader, namespace, selected, self.memory.max_bytes)

    def _selected(
        self,
        documents: Iterable[DocumentItem] | None,
        question: str | None,
        top_k: int | None,
        namespace: str,
    ) -> list[SelectedDocument]:
        if question is None:  # only documents are asked about: any question does
            query = Query("prefetch", documents, top_k, None, namespace)
        else:
            query = Query(question, None, top_k, None, namespace)
        if query.given:
            raise UsageError("prefetch takes ids of stored documents; a text has no packets yet")
        return select(self.store, query, lambda: self.retriever)
