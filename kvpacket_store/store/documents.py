"""Documents inside a transaction: what an upsert adds, keeps and lets go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvpacket_store.errors import CorruptRecordError, DocumentError, UsageError
from kvpacket_store.store.embeddings import (
    delete_embeddings,
    prepare_embeddings,
    write_embeddings,
)
from kvpacket_store.store.manifests import DocumentManifest, DocumentWrite
from kvpacket_store.store.namespaces import NamespaceRow
from kvpacket_store.store.packets import (
    PreparedPacket,
    delete_packet,
    find_manifest,
    is_intact,
    prepare_packet,
    write_packet,
)
from kvpacket_store.store.reports import Counters
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import (
    Table,
    document_key,
    document_name_key,
    packet_bytes,
    packet_row_key,
)
from kvpacket_store.store.transaction import Transaction

__all__ = [
    "PreparedDocument",
    "delete_document",
    "find_document",
    "manifest_row",
    "parse_document",
    "prepare_documents",
    "put_document",
    "remove_packet",
    "replace_packet",
    "size_of_document",
    "stage_packet",
]


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document with everything computed that needs no transaction."""

    manifest: DocumentManifest
    manifest_row: bytes
    text_row: bytes
    embedding_rows: tuple[bytes, ...]


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


def find_document(
    tx: Transaction, namespace: NamespaceRow, document_id: str
) -> DocumentManifest | None:
    """Return a document's manifest, or None.

    Raises
    ------
    CorruptRecordError
        It is there and cannot be read; ingest the document again.
    """
    row = tx.get(Table.DOCUMENTS, document_key(namespace.id, document_id))
    return None if row is None else parse_document(row, namespace.name, document_id)


def parse_document(row: bytes, namespace: str, document_id: str) -> DocumentManifest:
    """Read a row of table ``documents``."""
    what = f"document {document_id!r:.80} of namespace {namespace!r}"
    return DocumentManifest.from_json(unpack_json(row, what), namespace)


def put_document(
    tx: Transaction,
    namespace: NamespaceRow,
    document: PreparedDocument,
    packets: Mapping[str, PreparedPacket],
) -> None:
    """Write or replace a document. Its manifest comes last.

    Raises
    ------
    DocumentError
        A packet is neither here nor among ``packets``, or is here with other tokens.
    """
    manifest = document.manifest
    key = document_key(namespace.id, manifest.id)
    old_row = tx.get(Table.DOCUMENTS, key)
    old_keys = set() if old_row is None else _old_packet_keys(tx, namespace, key, old_row)
    for packet_key in manifest.packet_keys:
        _keep_or_write(tx, namespace, manifest.id, packet_key, packets.get(packet_key))
        tx.put(Table.REFERENCES, packet_row_key(namespace.id, packet_key), key[4:])
    _let_go(tx, namespace, key, old_keys.difference(manifest.packet_keys))
    delete_embeddings(tx, key)
    write_embeddings(tx, key, document.embedding_rows)
    tx.put(Table.TEXTS, key, document.text_row)
    tx.put(Table.DOCUMENTS, key, document.manifest_row)
    if old_row is not None:
        namespace.counters.add(size_of_document(old_row), -1)
    namespace.counters.add(size_of_document(document.manifest_row))


def delete_document(tx: Transaction, namespace: NamespaceRow, document_id: str) -> bool:
    """Delete a document and the packets that only it refers to; say whether it was there."""
    key = document_key(namespace.id, document_id)
    row = tx.get(Table.DOCUMENTS, key)
    if row is None:
        return False
    tx.delete(Table.DOCUMENTS, key)
    tx.delete(Table.TEXTS, key)
    delete_embeddings(tx, key)
    _let_go(tx, namespace, key, _old_packet_keys(tx, namespace, key, row))
    namespace.counters.add(size_of_document(row), -1)
    return True


def replace_packet(tx: Transaction, namespace: NamespaceRow, packet: PreparedPacket) -> bool:
    """Write a packet's record anew; say whether any document refers to it.

    Raises
    ------
    UsageError
        The packet that is here holds other tokens.
    """
    key = packet_row_key(namespace.id, packet.manifest.packet_key)
    if not tx.count_values(Table.REFERENCES, key):
        return False
    try:
        stored = find_manifest(tx, key)
    except CorruptRecordError:
        stored = None
    if stored is not None and stored.token_ids != packet.manifest.token_ids:
        raise UsageError(f"packet {stored.packet_key} holds other tokens; a repair keeps them")
    _write_anew(tx, namespace, key, packet)
    return True


def _keep_or_write(
    tx: Transaction,
    namespace: NamespaceRow,
    document_id: str,
    packet_key: str,
    packet: PreparedPacket | None,
) -> None:
    """Have the packet whole afterwards: as it is, or from the record that was passed."""
    if packet is not None:
        try:
            stage_packet(tx, namespace, packet)
        except UsageError as error:
            raise DocumentError(document_id, str(error)) from error
    elif not is_intact(tx, packet_row_key(namespace.id, packet_key)):
        raise DocumentError(
            document_id, f"packet {packet_key} is neither in the store nor passed with it"
        )


def stage_packet(tx: Transaction, namespace: NamespaceRow, packet: PreparedPacket) -> None:
    """Write a packet unless it is there and whole; documents may come to refer to it.

    Raises
    ------
    UsageError
        The packet that is there holds other tokens.
    """
    key = packet_row_key(namespace.id, packet.manifest.packet_key)
    if not is_intact(tx, key):
        _write_anew(tx, namespace, key, packet)
        return
    stored = find_manifest(tx, key)
    if stored is not None and stored.token_ids != packet.manifest.token_ids:
        raise UsageError(f"packet {stored.packet_key} is in the store with other tokens")


def _write_anew(
    tx: Transaction, namespace: NamespaceRow, key: bytes, packet: PreparedPacket
) -> None:
    is_expected = tx.count_values(Table.REFERENCES, key) > 0
    remove_packet(tx, namespace, key, is_expected=is_expected)
    namespace.counters.add(write_packet(tx, key, packet))


def remove_packet(
    tx: Transaction, namespace: NamespaceRow, key: bytes, *, is_expected: bool
) -> None:
    """Delete a packet from store and counters; doubt the counters where it is not as expected."""
    removed = delete_packet(tx, key)
    if removed is None or (is_expected and not removed.packets):
        namespace.is_suspect = True  # lost or spoilt behind our back, and still counted
    else:
        namespace.counters.add(removed, -1)


def _let_go(
    tx: Transaction, namespace: NamespaceRow, document: bytes, packet_keys: Iterable[str]
) -> None:
    """Take a document's references away, and the packets that then have none."""
    for packet_key in packet_keys:
        key = packet_row_key(namespace.id, packet_key)
        tx.delete(Table.REFERENCES, key, document[4:])
        if not tx.count_values(Table.REFERENCES, key):
            remove_packet(tx, namespace, key, is_expected=True)


def _old_packet_keys(
    tx: Transaction, namespace: NamespaceRow, document: bytes, row: bytes
) -> set[str]:
    """Return what a document refers to, from its references where its manifest is damaged."""
    try:
        return set(parse_document(row, namespace.name, "").packet_keys)
    except CorruptRecordError:
        prefix = document[:4]
        return {
            key[4:].hex()
            for key, name in tx.scan(Table.REFERENCES, prefix=prefix)
            if name == document[4:]
        }


def size_of_document(row: bytes) -> Counters:
    """Return a document's own share of its namespace's counters, packets apart."""
    return Counters(documents=1, live_bytes=len(row))
