"""From a key back to the document's id."""

from __future__ import annotations

from kvpacket_store.errors import CodecError
from kvpacket_store.store.rows import unpack_json
from kvpacket_store.store.schema import Table, verbatim_text
from kvpacket_store.store.transaction import Transaction

__all__ = ["document_id_of", "shown_id"]


def document_id_of(tx: Transaction, document: bytes) -> str:
    """Return the id of the document with this key.

    A long id stands in its manifest only; where that is gone or damaged, what the key keeps of the
    id is returned, with an ellipsis.
    """
    name = verbatim_text(document[4:])
    if name is not None:
        return name
    row = tx.get(Table.DOCUMENTS, document)
    try:
        if row is not None:
            return str(unpack_json(row, "a document")["id"])
    except (CodecError, KeyError):
        pass
    return document[4:].partition(b"\xff")[0].decode("utf-8", "replace") + "…"


def shown_id(tx: Transaction, document: bytes) -> str:
    """Return a document's id as well as its key tells it, for a report of damage."""
    try:
        return document_id_of(tx, document)
    except CodecError:
        return document[4:].decode("utf-8", "replace")
