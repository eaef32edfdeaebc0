"""Put right what can be put right without a model: references, shared packets, counters."""

from __future__ import annotations

from kvpacket_store.errors import CodecError
from kvpacket_store.store.accounts import count_namespace
from kvpacket_store.store.document_rows import parse_document
from kvpacket_store.store.documents import remove_packet
from kvpacket_store.store.namespaces import (
    NamespaceRow,
    every_namespace,
    save_namespace,
    shared_namespace,
)
from kvpacket_store.store.packets import (
    copy_record,
    delete_packet,
    parse_manifest,
    require_checksums,
)
from kvpacket_store.store.schema import Table, packet_row_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["mend_tables"]


def mend_tables(tx: Transaction) -> None:
    """Mend every namespace, in a write transaction.

    A damaged shared packet (header, preamble) is deleted: the next answer makes it again. Documents
    and packets themselves are not touched here: those need their text, or the model.
    """
    _drop_damaged_shared(tx)
    for namespace in [shared_namespace(tx), *every_namespace(tx)]:
        _drop_references_from_nowhere(tx, namespace)
        _add_missing_references(tx, namespace)
        namespace.counters = count_namespace(tx, namespace.id)
        save_namespace(tx, namespace)


def _drop_damaged_shared(tx: Transaction) -> None:
    prefix = _prefix(shared_namespace(tx))
    for key, row in list(tx.scan(Table.MANIFESTS, prefix=prefix)):
        try:
            manifest = parse_manifest(row, key)
            require_checksums(manifest, copy_record(tx, key, manifest))
        except CodecError:
            delete_packet(tx, key)


def _drop_references_from_nowhere(tx: Transaction, namespace: NamespaceRow) -> None:
    dangling = [
        (key, name)
        for key, name in tx.scan(Table.REFERENCES, prefix=_prefix(namespace))
        if tx.size(Table.DOCUMENTS, key[:4] + name) is None
    ]
    for key, name in dangling:
        tx.delete(Table.REFERENCES, key, name)
        if not tx.count_values(Table.REFERENCES, key):
            remove_packet(tx, namespace, key, is_expected=False)


def _add_missing_references(tx: Transaction, namespace: NamespaceRow) -> None:
    for key, row in list(tx.scan(Table.DOCUMENTS, prefix=_prefix(namespace))):
        try:
            manifest = parse_document(row, namespace.name, "")
        except CodecError:
            continue
        for packet_key in manifest.packet_keys:
            tx.put(Table.REFERENCES, packet_row_key(namespace.id, packet_key), key[4:])


def _prefix(namespace: NamespaceRow) -> bytes:
    return namespace.id.to_bytes(4, "big")
