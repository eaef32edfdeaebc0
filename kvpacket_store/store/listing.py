"""Documents page by page, in the order of their ids; a damaged one is named, and passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from kvpacket_store.errors import CodecError, UsageError
from kvpacket_store.store.document_ids import document_id_of, shown_id
from kvpacket_store.store.document_rows import parse_document
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import NamespaceRow, every_namespace, find_namespace
from kvpacket_store.store.pins import is_pinned
from kvpacket_store.store.reports import DocumentPage
from kvpacket_store.store.schema import Table, document_key, namespace_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["documents_page"]


def documents_page(
    tx: Transaction, namespace: str | None, limit: int, after: str | None
) -> DocumentPage:
    """Return a page; see ``PacketStore.document_page``."""
    if limit < 1:
        raise UsageError(f"limit {limit} must be 1 or more")
    page: list[DocumentManifest] = []
    damaged: list[tuple[str, str]] = []
    for row, key, value in _rows_after(tx, namespace, after):
        if len(page) == limit:
            return DocumentPage(tuple(page), _cursor(namespace, page[-1]), tuple(damaged))
        try:
            document = parse_document(value, row.name, document_id_of(tx, key))
        except CodecError:
            damaged.append((row.name, shown_id(tx, key)))
        else:
            page.append(replace(document, is_pinned=is_pinned(tx, key)))
    return DocumentPage(tuple(page), None, tuple(damaged))


def _rows_after(
    tx: Transaction, namespace: str | None, after: str | None
) -> Iterator[tuple[NamespaceRow, bytes, bytes]]:
    if namespace is not None:
        row = find_namespace(tx, namespace)
        if row is not None:
            yield from _rows_of(tx, row, after)
        return
    first, last_id = (None, None) if after is None else _parse_cursor(after)
    for row in every_namespace(tx, first):
        yield from _rows_of(tx, row, last_id if row.name == first else None)


def _rows_of(
    tx: Transaction, namespace: NamespaceRow, after: str | None
) -> Iterator[tuple[NamespaceRow, bytes, bytes]]:
    start = b"" if after is None else document_key(namespace.id, after)
    prefix = namespace.id.to_bytes(4, "big")
    for key, value in tx.scan(Table.DOCUMENTS, prefix=prefix, start=start):
        if key != start:
            yield namespace, key, value


def _cursor(namespace: str | None, last: DocumentManifest) -> str:
    return last.id if namespace is not None else json.dumps([last.namespace, last.id])


def _parse_cursor(after: str) -> tuple[str, str]:
    try:
        namespace, document_id = json.loads(after)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{after!r:.80} does not say where a list of all namespaces goes on; "
            "pass `next` of the page before"
        ) from error
    namespace_key(namespace)
    return namespace, document_id
