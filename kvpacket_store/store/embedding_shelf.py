"""What a store does with the embeddings of its documents' segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kvpacket_store.errors import CodecError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.document_ids import document_id_of
from kvpacket_store.store.document_rows import parse_document
from kvpacket_store.store.documents import find_document
from kvpacket_store.store.embeddings import (
    delete_embeddings,
    has_embeddings,
    prepare_embeddings,
    read_embedding,
    write_embeddings,
)
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import NamespaceRow, find_namespace
from kvpacket_store.store.schema import Table, document_key, packet_bytes
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["EmbeddingShelf"]

EmbeddingRow: TypeAlias = tuple[str, int, str, bytes]
"""``(document_id, segment_index, packet_key, embedding)``."""


class EmbeddingShelf:
    """Embeddings, by namespace and document. A part of `PacketStore`."""

    _environment: Environment
    _writer: Writer

    def put_embeddings(
        self, namespace: str, manifest: DocumentManifest, embeddings: Sequence[bytes]
    ) -> bool:
        """Replace a document's embeddings, if it is still the one that they were made of.

        Parameters
        ----------
        namespace : str
            Of the document.
        manifest : DocumentManifest
            As it was read before its text was embedded.
        embeddings : sequence of bytes
            float32 values of each of its segments.

        Returns
        -------
        bool
            False, and nothing is written, where the document was deleted meanwhile, or has another
            ``content_hash`` or other segments now.

        Raises
        ------
        DocumentError
            The embeddings do not fit the segments.
        CorruptRecordError
            The manifest that is there is damaged; ingest the document again.
        CapReachedError, StoreFullError
            As `put_document`.
        """
        rows = prepare_embeddings(manifest, embeddings)

        def action(tx: Transaction) -> bool:
            row = find_namespace(tx, namespace)
            stored = None if row is None else find_document(tx, row, manifest.id)
            if row is None or stored is None or _text_of(stored) != _text_of(manifest):
                return False
            key = document_key(row.id, manifest.id)
            delete_embeddings(tx, key)
            write_embeddings(tx, key, rows)
            row.advance()
            settle(tx, row)
            return True

        return self._writer.write_evicting(
            action,
            need_bytes=sum(len(row) for row in rows),
            packets={packet_bytes(key) for key in manifest.packet_keys},
        )

    def has_embeddings(self, namespace: str, manifest: DocumentManifest) -> bool:
        """Say whether every segment of a document has its embedding, undamaged."""
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            keys = [segment.packet_key for segment in manifest.segments]
            return row is not None and has_embeddings(tx, document_key(row.id, manifest.id), keys)

    def iter_embeddings(self, namespace: str) -> Iterator[EmbeddingRow]:
        """Yield ``(document_id, segment_index, packet_key, float32 values)`` as of one moment.

        All of them are copied first: no transaction stays open while the caller works. One that is
        damaged, or that no document names, is left out (see `has_embeddings`).
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            rows = [] if row is None else list(_every_embedding(tx, row))
        return iter(rows)


def _every_embedding(tx: Transaction, namespace: NamespaceRow) -> Iterator[EmbeddingRow]:
    """Yield a namespace's embeddings, each document's segments in order.

    Documents say which rows are theirs. A segment without a whole one is not retrieved until its
    document is ingested again, which is better than nothing being retrieved.
    """
    for key, value in tx.scan(Table.DOCUMENTS, prefix=namespace.id.to_bytes(4, "big")):
        try:
            document_id = document_id_of(tx, key)
            segments = parse_document(value, namespace.name, document_id).segments
        except CodecError:
            continue
        for index, segment in enumerate(segments):
            values = read_embedding(tx, key, index, segment.packet_key)
            if values is not None:
                yield document_id, index, segment.packet_key, values


def _text_of(manifest: DocumentManifest) -> tuple[object, ...]:
    """Return what says which text a document has, and how it is cut."""
    return manifest.content_hash, manifest.segments
