"""What a store does with documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvpacket_store.errors import NotFoundError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.document_rows import manifest_row, prepare_documents, size_of_document
from kvpacket_store.store.documents import (
    delete_document,
    find_document,
    put_document,
)
from kvpacket_store.store.embedding_shelf import EmbeddingShelf
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.listing_shelf import ListingShelf
from kvpacket_store.store.manifests import DocumentManifest, DocumentWrite
from kvpacket_store.store.namespaces import (
    NamespaceRow,
    find_namespace,
    find_or_add_namespace,
)
from kvpacket_store.store.packet_copies import copy_packet, require_checksums
from kvpacket_store.store.packet_manifest import PacketRecord, StoredPacket
from kvpacket_store.store.packets import find_manifest, require_held
from kvpacket_store.store.pins import set_pin
from kvpacket_store.store.read_counts import ReadCounter
from kvpacket_store.store.rows import unpack
from kvpacket_store.store.schema import (
    Table,
    document_key,
    namespace_key,
    packet_bytes,
    packet_row_key,
)
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["DocumentShelf"]


class DocumentShelf(ListingShelf, EmbeddingShelf):
    """Documents and their texts, by namespace. A part of `PacketStore`."""

    _environment: Environment
    _reads: ReadCounter
    _writer: Writer

    def put_document(
        self,
        namespace: str,
        manifest: DocumentManifest,
        records: Mapping[str, PacketRecord],
        embeddings: Sequence[bytes] | None = None,
        *,
        keep_since_ms: int | None = None,
    ) -> None:
        """Write or replace one document in one synced commit.

        Packets that are in the namespace already stay as they are, whether or not ``records`` has
        them; one that was evicted comes back if ``records`` has it, and stays evicted if not.
        Packets that only the replaced version referred to are deleted. At the byte cap, packets
        that were used least recently are evicted.

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
        keep_since_ms : int or None
            Do not evict packets that were used since then (ms since 1970): pass the start of an
            ingest, which must not evict what it has itself just filed.

        Raises
        ------
        DocumentError
            A packet is missing, or something does not fit together. Nothing was written.
        CapReachedError
            Nothing more may be evicted; delete documents. Nothing was written.
        StoreFullError
            Free disk space. Nothing was written.
        """
        write = DocumentWrite(manifest, records, embeddings)
        self.put_documents(namespace, [write], keep_since_ms=keep_since_ms)

    def put_documents(
        self,
        namespace: str,
        writes: Iterable[DocumentWrite],
        *,
        keep_since_ms: int | None = None,
    ) -> None:
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

        self._writer.write_evicting(
            action,
            need_bytes=sum(document.num_bytes for document in documents)
            + sum(packet.num_bytes for packet in packets.values()),
            packets={
                packet_bytes(key) for document in documents for key in document.manifest.packet_keys
            },
            keep_since_ms=keep_since_ms,
        )

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

        self._writer.write_evicting(action, need_bytes=0)

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

        self._writer.write(action, frees_space=True)

    def pin_document(self, namespace: str, document_id: str) -> None:
        """Never evict the packets of a document, whatever version of it there will be.

        Raises
        ------
        NotFoundError
            No such document.
        """
        self._set_pin(namespace, document_id, is_pinned=True)

    def unpin_document(self, namespace: str, document_id: str) -> None:
        """Let the packets of a document be evicted again; errors as `pin_document`."""
        self._set_pin(namespace, document_id, is_pinned=False)

    def _set_pin(self, namespace: str, document_id: str, *, is_pinned: bool) -> None:
        def action(tx: Transaction) -> None:
            row = find_namespace(tx, namespace)
            key = document_key(0 if row is None else row.id, document_id)
            if row is None or tx.size(Table.DOCUMENTS, key) is None:
                raise _no_document(namespace, document_id)
            set_pin(tx, key, is_pinned=is_pinned)

        self._writer.write_evicting(action, need_bytes=0)

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
    ) -> tuple[DocumentManifest, dict[str, StoredPacket]]:
        """Return a document and all its packets as of one moment.

        Raises
        ------
        NotFoundError
            No such document, or one of its packets is missing or evicted; prefill that again.
        CorruptRecordError
            One of its packets is damaged; prefill that again.
        """
        found: list[StoredPacket] = []
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
                require_held(packet)
                found.append(copy_packet(tx, key, packet))
                self._reads.add_packet(found[-1])
        return document, {p.manifest.packet_key: require_checksums(p) for p in found}


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
