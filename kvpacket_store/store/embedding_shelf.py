"""What a store does with the embeddings of its documents' segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import find_document
from kvpacket_store.store.embeddings import (
    EmbeddingRow,
    delete_embeddings,
    every_embedding,
    has_embeddings,
    prepare_embeddings,
    write_embeddings,
)
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import find_namespace
from kvpacket_store.store.schema import document_key, packet_bytes
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["EmbeddingShelf"]


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

        All of them are copied first: no transaction stays open while the caller works. A damaged
        one is left out (see `has_embeddings`).
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
            rows = [] if row is None else list(every_embedding(tx, row.id))
        return iter(rows)


def _text_of(manifest: DocumentManifest) -> tuple[object, ...]:
    """Return what says which text a document has, and how it is cut."""
    return manifest.content_hash, manifest.segments
