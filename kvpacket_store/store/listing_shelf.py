"""What a store says of all its documents: pages, counts, names, generations."""

from __future__ import annotations

from kvpacket_store.store.environment import Environment
from kvpacket_store.store.listing import documents_page
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import every_namespace, find_namespace
from kvpacket_store.store.reports import DocumentPage

__all__ = ["ListingShelf"]


class ListingShelf:
    """Documents by namespace, all of them at once. A part of `PacketStore`."""

    _environment: Environment

    def list_documents(
        self, namespace: str | None, limit: int = 100, after: str | None = None
    ) -> tuple[list[DocumentManifest], str | None]:
        """Return one page of documents, in the order of their ids.

        Documents that are damaged are left out (see `document_page`).

        Parameters
        ----------
        namespace : str or None
            None: all of them, in the order of their names.
        limit : int
            Most documents on the page.
        after : str or None
            What the page before returned as its second value. In one namespace that is the last
            id, and any text will do: the page begins after it.

        Returns
        -------
        list of DocumentManifest, str or None
            The page, and where the next one begins; None after the last.
        """
        page = self.document_page(namespace, limit, after)
        return list(page.documents), page.following

    def document_page(
        self, namespace: str | None, limit: int = 100, after: str | None = None
    ) -> DocumentPage:
        """Return what `list_documents` does, and which documents between them are damaged."""
        with self._environment.read() as tx:
            return documents_page(tx, namespace, limit, after)

    def count(self, namespace: str | None = None) -> int:
        """Return how many documents a namespace, or the store, has."""
        with self._environment.read() as tx:
            if namespace is None:
                return sum(row.counters.documents for row in every_namespace(tx))
            row = find_namespace(tx, namespace)
            return 0 if row is None else row.counters.documents

    def namespaces(self) -> list[str]:
        """Return the names of the namespaces that hold documents, in order."""
        with self._environment.read() as tx:
            return [row.name for row in every_namespace(tx) if row.counters.documents]

    def generation(self, namespace: str) -> int:
        """Return a number that grows with every commit that changes the namespace's documents.

        It never comes back, not even in a store that was restored from a copy. 0: never used.
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            return 0 if row is None else row.generation
