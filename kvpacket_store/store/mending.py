"""Put right what can be put right without a model: references, shared packets, counters."""

from __future__ import annotations

from itertools import count

from kvpacket_store.errors import CodecError
from kvpacket_store.store.accounts import count_namespace
from kvpacket_store.store.claims import ClaimsReader
from kvpacket_store.store.document_rows import parse_document
from kvpacket_store.store.documents import remove_packet
from kvpacket_store.store.namespaces import (
    NamespaceRow,
    every_namespace,
    find_namespace,
    lost_numbers,
    restore_count,
    save_namespace,
    shared_namespace,
)
from kvpacket_store.store.packet_copies import copy_packet, require_checksums
from kvpacket_store.store.packets import delete_packet, parse_manifest
from kvpacket_store.store.schema import Table, packet_row_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["add_missing_references", "mend_tables"]


def mend_tables(tx: Transaction) -> None:
    """Mend every namespace, in a write transaction.

    A damaged shared packet (header, preamble) is deleted: the next answer makes it again. A
    namespace whose own row is lost comes back under the name ``recovered-<number>``. Documents and
    packets themselves are not touched here: those need their text, or the model.
    """
    _drop_damaged_shared(tx)
    for number in lost_numbers(tx):
        _recover_namespace(tx, number)
    restore_count(tx)
    for namespace in [shared_namespace(tx), *every_namespace(tx)]:
        for key, row in list(tx.scan(Table.DOCUMENTS, prefix=_prefix(namespace))):
            add_missing_references(tx, key, row)
        _drop_wrong_references(tx, namespace)
        namespace.counters = count_namespace(tx, namespace.id)
        save_namespace(tx, namespace)


def _recover_namespace(tx: Transaction, number: int) -> None:
    """Give rows a namespace again. Its name stood in the lost row alone, so it gets another."""
    names = (f"recovered-{number}" + (f"-{n}" if n > 1 else "") for n in count(1))
    name = next(name for name in names if find_namespace(tx, name) is None)
    namespace = NamespaceRow(number, name)
    namespace.advance()
    save_namespace(tx, namespace)


def _drop_damaged_shared(tx: Transaction) -> None:
    prefix = _prefix(shared_namespace(tx))
    for key, row in list(tx.scan(Table.MANIFESTS, prefix=prefix)):
        try:
            require_checksums(copy_packet(tx, key, parse_manifest(row, key)))
        except CodecError:
            delete_packet(tx, key)


def _drop_wrong_references(tx: Transaction, namespace: NamespaceRow) -> None:
    """Drop those from documents that are not there, or do not name the packet."""
    reader = ClaimsReader()
    wrong: list[tuple[bytes, bytes]] = []
    for key, name in tx.scan(Table.REFERENCES, prefix=_prefix(namespace)):
        claims = reader.of(tx, key[:4] + name)
        if claims is None or not claims.name(key[4:]):
            wrong.append((key, name))
    for key, name in wrong:
        tx.delete(Table.REFERENCES, key, name)
        if not tx.count_values(Table.REFERENCES, key):
            remove_packet(tx, namespace, key, is_expected=False)


def add_missing_references(tx: Transaction, document: bytes, row: bytes) -> int:
    """Let packets know of a document that names them; return how many it names."""
    try:
        packet_keys = parse_document(row, "", "").packet_keys
    except CodecError:
        return 0
    number = int.from_bytes(document[:4], "big")
    for packet_key in packet_keys:
        key = packet_row_key(number, packet_key)
        if not tx.has_value(Table.REFERENCES, key, document[4:]):
            tx.put(Table.REFERENCES, key, document[4:])
    return len(packet_keys)


def _prefix(namespace: NamespaceRow) -> bytes:
    return namespace.id.to_bytes(4, "big")
