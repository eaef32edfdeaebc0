"""Documents inside a transaction: what an upsert adds, keeps and lets go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kvpacket_store.errors import CorruptRecordError, DocumentError, UsageError
from kvpacket_store.store.claims import is_without_manifest
from kvpacket_store.store.document_rows import (
    PreparedDocument,
    parse_document,
    size_of_document,
)
from kvpacket_store.store.embeddings import (
    delete_embeddings,
    write_embeddings,
)
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import NamespaceRow
from kvpacket_store.store.packet_manifest import PacketManifest
from kvpacket_store.store.packets import (
    PreparedPacket,
    delete_packet,
    evict_layers,
    find_manifest,
    is_intact,
    write_packet,
)
from kvpacket_store.store.pins import is_pinned, set_pin
from kvpacket_store.store.schema import (
    Table,
    document_key,
    packet_row_key,
)
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.usage import mark_used, parse_usage, write_usage

__all__ = [
    "delete_document",
    "evict_packet",
    "find_document",
    "put_document",
    "remove_packet",
    "replace_packet",
    "stage_packet",
]


def find_document(
    tx: Transaction, namespace: NamespaceRow, document_id: str
) -> DocumentManifest | None:
    """Return a document's manifest, or None.

    Raises
    ------
    CorruptRecordError
        It is there and cannot be read; ingest the document again.
    """
    key = document_key(namespace.id, document_id)
    row = tx.get(Table.DOCUMENTS, key)
    if row is None:
        return None
    manifest = parse_document(row, namespace.name, document_id)
    return replace(manifest, is_pinned=is_pinned(tx, key))


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
    old_keys = _old_packet_keys(tx, namespace, key, old_row)
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
    """Delete a document and the packets that only it refers to; say whether it was there.

    One whose manifest is lost is there as long as its text is.
    """
    key = document_key(namespace.id, document_id)
    row = tx.get(Table.DOCUMENTS, key)
    if row is None and not is_without_manifest(tx, key):
        return False
    old_keys = _old_packet_keys(tx, namespace, key, row)
    tx.delete(Table.DOCUMENTS, key)
    tx.delete(Table.TEXTS, key)
    delete_embeddings(tx, key)
    set_pin(tx, key, is_pinned=False)
    _let_go(tx, namespace, key, old_keys)
    if row is not None:
        namespace.counters.add(size_of_document(row), -1)
    return True


def replace_packet(
    tx: Transaction, namespace: NamespaceRow, packet: PreparedPacket, *, is_use: bool
) -> bool:
    """Write a packet's layers anew; say whether any document refers to it.

    Raises
    ------
    UsageError
        The packet that is here holds other tokens.
    """
    key = packet_row_key(namespace.id, packet.manifest.packet_key)
    if not tx.count_values(Table.REFERENCES, key):
        return False
    stored = _readable_manifest(tx, key)
    if stored is not None and stored.token_ids != packet.manifest.token_ids:
        raise UsageError(f"packet {stored.packet_key} holds other tokens; a repair keeps them")
    usage = None if is_use else tx.get(Table.USAGE, key)
    _write_anew(tx, namespace, key, packet)
    if usage is not None:
        write_usage(tx, key, packet.manifest.stored_bytes, parse_usage(usage)[0])
    return True


def _keep_or_write(
    tx: Transaction,
    namespace: NamespaceRow,
    document_id: str,
    packet_key: str,
    packet: PreparedPacket | None,
) -> None:
    """Have the packet afterwards: as it is, evicted or not, or from the record that was passed."""
    if packet is not None:
        try:
            stage_packet(tx, namespace, packet)
        except UsageError as error:
            raise DocumentError(document_id, str(error)) from error
        return
    key = packet_row_key(namespace.id, packet_key)
    stored = _readable_manifest(tx, key)
    if stored is None or not (stored.is_evicted or is_intact(tx, key)):
        raise DocumentError(
            document_id, f"packet {packet_key} is neither in the store nor passed with it"
        )
    mark_used(tx, key)


def stage_packet(tx: Transaction, namespace: NamespaceRow, packet: PreparedPacket) -> None:
    """Write a packet unless it is there and whole; documents may come to refer to it.

    Raises
    ------
    UsageError
        The packet that is there holds other tokens.
    """
    key = packet_row_key(namespace.id, packet.manifest.packet_key)
    stored = _readable_manifest(tx, key)
    if stored is not None and stored.token_ids != packet.manifest.token_ids:
        raise UsageError(f"packet {stored.packet_key} is in the store with other tokens")
    if is_intact(tx, key):
        mark_used(tx, key)
    else:
        _write_anew(tx, namespace, key, packet)


def evict_packet(tx: Transaction, namespace: NamespaceRow, key: bytes) -> bool:
    """Delete a packet's layers and keep what is known of it; say whether there were any."""
    change = evict_layers(tx, key)
    if change is None:
        return False
    namespace.counters.add(change)
    return True


def _readable_manifest(tx: Transaction, key: bytes) -> PacketManifest | None:
    try:
        return find_manifest(tx, key)
    except CorruptRecordError:
        return None


def _write_anew(
    tx: Transaction, namespace: NamespaceRow, key: bytes, packet: PreparedPacket
) -> None:
    is_expected = tx.count_values(Table.REFERENCES, key) > 0
    remove_packet(tx, namespace, key, is_expected=is_expected)
    namespace.counters.add(write_packet(tx, key, packet))
    write_usage(tx, key, packet.manifest.stored_bytes)


def remove_packet(
    tx: Transaction, namespace: NamespaceRow, key: bytes, *, is_expected: bool
) -> None:
    """Delete a packet from store and counters; doubt the counters where it is not as expected."""
    removed = delete_packet(tx, key)
    if removed is None or (is_expected and not (removed.packets or removed.evicted_packets)):
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
    tx: Transaction, namespace: NamespaceRow, document: bytes, row: bytes | None
) -> set[str]:
    """Return what a document refers to, from its references where its manifest is damaged."""
    if row is None:
        if not is_without_manifest(tx, document):
            return set()
        namespace.is_suspect = True  # the lost manifest may still be counted
        return _keys_by_references(tx, document)
    try:
        return set(parse_document(row, namespace.name, "").packet_keys)
    except CorruptRecordError:
        return _keys_by_references(tx, document)


def _keys_by_references(tx: Transaction, document: bytes) -> set[str]:
    return {
        key[4:].hex()
        for key, name in tx.scan(Table.REFERENCES, prefix=document[:4])
        if name == document[4:]
    }
