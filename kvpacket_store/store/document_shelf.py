"""What a store does with documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvpacket_store.errors import NotFoundError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import (
    delete_document,
    find_document,
    manifest_row,
    prepare_documents,
    put_document,
    size_of_document,
)
from kvpacket_store.store.embeddings import EmbeddingRow, every_embedding, has_embeddings
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.listing import documents_page
from kvpacket_store.store.manifests import (
    DocumentManifest,
    DocumentWrite,
    PacketManifest,
    PacketRecord,
)
from kvpacket_store.store.namespaces import (
    NamespaceRow,
    every_namespace,
    find_namespace,
    find_or_add_namespace,
)
from kvpacket_store.store.packets import copy_record, find_manifest, require_checksums
from kvpacket_store.store.rows import unpack
from kvpacket_store.store.schema import Table, document_key, namespace_key, packet_row_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["DocumentShelf"]


class DocumentShelf:
    """Documents, their texts and embeddings, by namespace. A part of `PacketStore`."""

    _environment: Environment

    def put_document(
        self,
        namespace: str,
        manifest: DocumentManifest,
        records: Mapping[str, PacketRecord],
        embeddings: Sequence[bytes] | None = None,
    ) -> None:
        """Write or replace one document in one synced commit.

        Packets that are in the namespace already stay as they are, whether or not ``records`` has
        them; packets that only the replaced version referred to are deleted.

        Parameters
        ----------
        namespace : str
            1 to 200 characters.
        manifest : DocumentManifest
            With its text.
        records : mapping of str to PacketRecord
            By packet key; at least those that the namespace does not hold.
        embeddings : sequence of bytes or None
            float32 values of each segment. None leaves the document without.

        Raises
        ------
        DocumentError
            A packet is missing, or something does not fit together. Nothing was written.
        StoreFullError
            Delete documents or free disk space. Nothing was written.
        """
        self.put_documents(namespace, [DocumentWrite(manifest, records, embeddings)])

    def put_documents(self, namespace: str, writes: Iterable[DocumentWrite]) -> None:
        """Write or replace several documents in one synced commit: all of them, or none.

        They share their records. A synced commit costs some 10 ms, so bring several at once.
        """
        namespace_key(namespace)
        documents, packets = prepare_documents(writes)
        if not documents:
            return

        def action(tx: Transaction) -> None:
            row = find_or_add_namespace(tx, namespace)
            for document in documents:
                put_document(tx, row, document, packets)
            row.advance()
            settle(tx, row)

        self._environment.write(action)

    def update_metadata(
        self, namespace: str, document_id: str, metadata: Mapping[str, Any], metadata_hash: str
    ) -> None:
        """Replace a document's metadata; packets and embeddings stay as they are.

        Raises
        ------
        NotFoundError
            No such document.
        """

        def action(tx: Transaction) -> None:
            row, old = _require(tx, namespace, document_id)
            key = document_key(row.id, document_id)
            old_bytes = tx.get(Table.DOCUMENTS, key) or b""
            new_bytes = manifest_row(replace(old, metadata=metadata, metadata_hash=metadata_hash))
            tx.put(Table.DOCUMENTS, key, new_bytes)
            row.counters.add(size_of_document(old_bytes), -1)
            row.counters.add(size_of_document(new_bytes))
            row.advance()
            settle(tx, row)

        self._environment.write(action)

    def delete_document(self, namespace: str, document_id: str) -> None:
        """Delete a document, and the packets that no other document refers to.

        Raises
        ------
        NotFoundError
            No such document.
        """

        def action(tx: Transaction) -> None:
            row = find_namespace(tx, namespace)
            if row is None or not delete_document(tx, row, document_id):
                raise _no_document(namespace, document_id)
            row.advance()
            settle(tx, row)

        self._environment.write(action, frees_space=True)

    def get_document(self, namespace: str, document_id: str) -> DocumentManifest:
        """Return a document's manifest, without its text.

        Raises
        ------
        NotFoundError
            No such document.
        CorruptRecordError
            The manifest is damaged; ingest the document again.
        """
        with self._environment.read() as tx:
            return _require(tx, namespace, document_id)[1]

    def has_document(self, namespace: str, document_id: str) -> bool:
        """Say whether `get_document` would find it."""
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            if row is None:
                return False
            return tx.size(Table.DOCUMENTS, document_key(row.id, document_id)) is not None

    def document_text(self, namespace: str, document_id: str) -> str:
        """Return a document's text as it was put.

        Raises
        ------
        NotFoundError
            No such document.
        CorruptRecordError
            The text is damaged; ingest the document again.
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            value = None if row is None else tx.get(Table.TEXTS, document_key(row.id, document_id))
        if value is None:
            raise _no_document(namespace, document_id)
        text = unpack(value, f"the text of document {document_id!r:.80}")
        return text.decode("utf-8", "surrogatepass")

    def read_document(
        self, namespace: str, document_id: str
    ) -> tuple[DocumentManifest, dict[str, bytes]]:
        """Return a document and the records of all its packets as of one moment.

        Raises
        ------
        NotFoundError
            No such document, or one of its packets is missing; ingest the document again.
        CorruptRecordError
            One of its packets is damaged; prefill that again.
        """
        found: list[tuple[PacketManifest, bytes]] = []
        with self._environment.read() as tx:
            row, document = _require(tx, namespace, document_id)
            for packet_key in document.packet_keys:
                key = packet_row_key(row.id, packet_key)
                packet = find_manifest(tx, key)
                if packet is None:
                    raise NotFoundError(
                        f"packet {packet_key} of document {document_id!r:.80} is not in the store; "
                        "ingest the document again"
                    )
                found.append((packet, copy_record(tx, key, packet)))
        for packet, record in found:
            require_checksums(packet, record)
        return document, {packet.packet_key: record for packet, record in found}

    def list_documents(
        self, namespace: str | None, limit: int = 100, after: str | None = None
    ) -> tuple[list[DocumentManifest], str | None]:
        """Return one page of documents, in the order of their ids.

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

    def has_embeddings(self, namespace: str, manifest: DocumentManifest) -> bool:
        """Say whether every segment of a document has its embedding, undamaged."""
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            keys = [segment.packet_key for segment in manifest.segments]
            return row is not None and has_embeddings(tx, document_key(row.id, manifest.id), keys)

    def iter_embeddings(self, namespace: str) -> Iterator[EmbeddingRow]:
        """Yield ``(document_id, segment_index, packet_key, float32 values)`` as of one moment.

        All of them are copied first: no transaction stays open while the caller works. A damaged
        one is left out (see `has_embeddings`).
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            rows = [] if row is None else list(every_embedding(tx, row.id))
        return iter(rows)


def _require(
    tx: Transaction, namespace: str, document_id: str
) -> tuple[NamespaceRow, DocumentManifest]:
    row = find_namespace(tx, namespace)
    document = None if row is None else find_document(tx, row, document_id)
    if row is None or document is None:
        raise _no_document(namespace, document_id)
    return row, document


def _no_document(namespace: str, document_id: str) -> NotFoundError:
    return NotFoundError(f"no document {document_id!r:.80} in namespace {namespace!r:.80}")
