"""Documents as rows: framed before a transaction, parsed inside one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvpacket_store.errors import DocumentError
from kvpacket_store.store.embeddings import prepare_embeddings
from kvpacket_store.store.manifests import DocumentManifest, DocumentWrite
from kvpacket_store.store.packets import PreparedPacket, prepare_packet
from kvpacket_store.store.reports import Counters
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import document_name_key, packet_bytes

__all__ = [
    "PreparedDocument",
    "manifest_row",
    "parse_document",
    "prepare_documents",
    "size_of_document",
]


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document with everything computed that needs no transaction."""

    manifest: DocumentManifest
    manifest_row: bytes
    text_row: bytes
    embedding_rows: tuple[bytes, ...]

    @property
    def num_bytes(self) -> int:
        """Of its rows, packets apart."""
        embedding_bytes = sum(len(row) for row in self.embedding_rows)
        return len(self.manifest_row) + len(self.text_row) + embedding_bytes


def prepare_documents(
    writes: Iterable[DocumentWrite],
) -> tuple[list[PreparedDocument], dict[str, PreparedPacket]]:
    """Check and frame a batch; its documents share their records.

    Raises
    ------
    DocumentError, UsageError
        What is wrong, and with which document; nothing was written.
    """
    documents: list[PreparedDocument] = []
    packets: dict[str, PreparedPacket] = {}
    for write in writes:
        documents.append(_prepare(write.manifest, write.embeddings))
        for packet_key, record in write.records.items():
            if packet_key != record.packet_key:
                raise DocumentError(
                    write.manifest.id,
                    f"record {record.packet_key} is passed under key {packet_key!r:.80}",
                )
            packets[packet_key] = packets.get(packet_key) or prepare_packet(record)
    return documents, packets


def _prepare(manifest: DocumentManifest, embeddings: Sequence[bytes] | None) -> PreparedDocument:
    document_name_key(manifest.id)
    if not isinstance(manifest.text, str):
        raise DocumentError(manifest.id, "its text is missing; pass it in the manifest")
    for packet_key in manifest.packet_keys:
        packet_bytes(packet_key)
    return PreparedDocument(
        manifest=manifest,
        manifest_row=manifest_row(manifest),
        text_row=pack(manifest.text.encode("utf-8", "surrogatepass")),
        embedding_rows=prepare_embeddings(manifest, embeddings),
    )


def manifest_row(manifest: DocumentManifest) -> bytes:
    """Return the row of table ``documents``.

    Raises
    ------
    DocumentError
        The metadata is not JSON.
    """
    try:
        return pack(json_bytes(manifest.to_json()))
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError(manifest.id, f"its metadata is not JSON ({error})") from error


def parse_document(row: bytes, namespace: str, document_id: str) -> DocumentManifest:
    """Read a row of table ``documents``."""
    what = f"document {document_id!r:.80} of namespace {namespace!r}"
    return DocumentManifest.from_json(unpack_json(row, what), namespace)


def size_of_document(row: bytes) -> Counters:
    """Return a document's own share of its namespace's counters, packets apart."""
    return Counters(documents=1, live_bytes=len(row))
