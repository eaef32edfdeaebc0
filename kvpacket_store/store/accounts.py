"""The counters of a namespace: settled with every commit, counted anew where damage was met."""

from __future__ import annotations

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store.document_rows import size_of_document
from kvpacket_store.store.namespaces import NamespaceRow, save_namespace
from kvpacket_store.store.packets import parse_manifest, size_of
from kvpacket_store.store.reports import Counters
from kvpacket_store.store.schema import Table
from kvpacket_store.store.transaction import Transaction

__all__ = ["count_namespace", "settle"]


def settle(tx: Transaction, namespace: NamespaceRow) -> None:
    """Save a namespace's counters and generation; the last step of a transaction."""
    if namespace.is_suspect:
        namespace.counters = count_namespace(tx, namespace.id)
    save_namespace(tx, namespace)


def count_namespace(tx: Transaction, namespace_id: int) -> Counters:
    """Count everything; a packet whose manifest cannot be read counts nothing."""
    prefix = namespace_id.to_bytes(4, "big")
    counters = Counters()
    for _, row in tx.scan(Table.DOCUMENTS, prefix=prefix):
        counters.add(size_of_document(row))
    for key, row in tx.scan(Table.MANIFESTS, prefix=prefix):
        try:
            manifest = parse_manifest(row, key)
        except CorruptRecordError:
            continue
        counters.add(size_of(manifest, len(row)))
    return counters
