"""Texts that came with a question, filed as documents where the caller says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvpacket_store.api.incoming import content_hash
from kvpacket_store.api.ingest import Ingest
from kvpacket_store.errors import DocumentError, ReadOnlyError

if TYPE_CHECKING:
    from kvpacket_store.api.selection import Query
    from kvpacket_store.api.store import Store
    from kvpacket_store.prefill import BodyKV

__all__ = ["keep_given", "require_keeping"]


def require_keeping(store: Store) -> None:
    """Refuse to keep anything where nothing can be written, before a forward is run.

    Raises
    ------
    ReadOnlyError
        The store is open for reading alone.
    """
    if store.packets.is_read_only:
        raise ReadOnlyError(
            f"store {store.path} is open for reading alone; ask without keep, or open it where "
            "its folder can be written"
        )


def keep_given(store: Store, query: Query, bodies: Mapping[str, BodyKV]) -> None:
    """Ingest what came as text; what was prefilled for the prompt is not prefilled again.

    A text without an id is left out where all its packets are stored already: as a document of its
    own it would be retrieved beside the one that it is from.

    Parameters
    ----------
    bodies : mapping
        Packets made for the prompt, by packet key.

    Raises
    ------
    DocumentError, StoreFullError
        As `Store.ingest`; the documents before are kept.
    """
    documents = {
        (given.document.id, content_hash(given.document)): given.document
        for given in query.given
        if given.has_id or not given.is_stored(store, query.namespace)
    }
    if not documents:
        return
    report = Ingest(store, query.namespace, bodies=bodies).run(documents.values())
    for failure in report.errors:
        raise DocumentError(failure.id, failure.error)
