"""Documents page by page, in the order of their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvpacket_store.errors import UsageError
from kvpacket_store.store.document_ids import document_id_of
from kvpacket_store.store.documents import parse_document
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import NamespaceRow, every_namespace, find_namespace
from kvpacket_store.store.schema import Table, document_key, namespace_key
from kvpacket_store.store.transaction import Transaction

__all__ = ["documents_page"]


def documents_page(
    tx: Transaction, namespace: str | None, limit: int, after: str | None
) -> tuple[list[DocumentManifest], str | None]:
    """Return a page, and where the next one begins; see ``PacketStore.list_documents``."""
    if limit < 1:
        raise UsageError(f"limit {limit} must be 1 or more")
    page: list[DocumentManifest] = []
    for document in _documents_after(tx, namespace, after):
        if len(page) == limit:
            return page, _cursor(namespace, page[-1])
        page.append(document)
    return page, None


def _documents_after(
    tx: Transaction, namespace: str | None, after: str | None
) -> Iterator[DocumentManifest]:
    if namespace is not None:
        row = find_namespace(tx, namespace)
        if row is not None:
            yield from _documents_of(tx, row, after)
        return
    first, last_id = (None, None) if after is None else _parse_cursor(after)
    for row in every_namespace(tx, first):
        yield from _documents_of(tx, row, last_id if row.name == first else None)


def _documents_of(
    tx: Transaction, namespace: NamespaceRow, after: str | None
) -> Iterator[DocumentManifest]:
    start = b"" if after is None else document_key(namespace.id, after)
    prefix = namespace.id.to_bytes(4, "big")
    for key, row in tx.scan(Table.DOCUMENTS, prefix=prefix, start=start):
        if key != start:
            yield parse_document(row, namespace.name, document_id_of(tx, key))


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
