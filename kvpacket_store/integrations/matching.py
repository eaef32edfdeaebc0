"""Texts from any framework's retriever, as what an engine takes: by content, or by their packet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpacket_store.api.given import GivenText
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.types import Document, Text

if TYPE_CHECKING:
    from kvpacket_store.api import Store

__all__ = ["ForeignText", "items_of", "plain_metadata"]


class ForeignText(NamedTuple):
    """A text from somebody else's retriever."""

    text: str
    metadata: Mapping[str, Any]
    id: str | None


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a framework's metadata as JSON; what JSON has no word for becomes a string.

    Examples
    --------
    >>> import datetime
    >>> plain_metadata({"page": 3, "day": datetime.date(2026, 1, 31), "title": None})
    {'page': 3, 'day': '2026-01-31'}
    """
    try:
        text = json.dumps(dict(metadata), allow_nan=False, default=str)
    except (TypeError, ValueError):
        return {}
    plain: dict[str, Any] = json.loads(text)
    for name in ("title", "media_type"):
        if not isinstance(plain.get(name), str):
            plain.pop(name, None)
    return plain


def items_of(
    store: Store, namespace: str, documents: Iterable[DocumentItem | ForeignText]
) -> list[DocumentItem]:
    """Return foreign texts as an engine takes them; what it takes anyway stays.

    Those that a retriever of ours found are taken by their packets, all of one document together.
    Blank ones are left out.
    """
    items: list[DocumentItem] = []
    segments: dict[str, list[int]] = {}
    for document in documents:
        if not isinstance(document, ForeignText):
            items.append(document)
            continue
        place = _packet_place(store, namespace, document.metadata)
        if place is not None:
            if place[0] not in segments:
                segments[place[0]] = []
                items.append((place[0], segments[place[0]]))
            segments[place[0]].append(place[1])
        elif document.text.strip():
            items.append(_given(store, namespace, document))
    return items


def _packet_place(
    store: Store, namespace: str, metadata: Mapping[str, Any]
) -> tuple[str, int] | None:
    """Return the document and segment that a retriever of ours named, if they are still that."""
    document_id, number = metadata.get("document_id"), metadata.get("segment")
    if not isinstance(document_id, str) or not document_id or not isinstance(number, int):
        return None
    try:
        segments = store.packets.get_document(namespace, document_id).segments
    except (NotFoundError, CodecError):
        return None
    is_same = 0 <= number < len(segments) and (
        segments[number].packet_key == metadata.get("packet_key")
    )
    return (document_id, number) if is_same else None


def _given(store: Store, namespace: str, document: ForeignText) -> GivenText:
    """Return a text to be matched by its content: with its title, or alone if that is stored.

    Loaders put a title into the metadata; whoever filed the text may not have had it. The id is
    used where the text is not stored yet: else it would be filed a second time.
    """
    plain = plain_metadata(document.metadata)
    whole = GivenText(Text(document.text, plain))
    if whole.is_stored(store, namespace):
        return whole
    if "title" in plain:
        alone = GivenText(Text(document.text, {**plain, "title": ""}))
        if alone.is_stored(store, namespace):
            return alone
    return GivenText(Document(document.id, document.text, plain)) if document.id else whole
