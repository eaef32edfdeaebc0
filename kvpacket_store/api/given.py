"""Texts that come with a question: matched with stored packets by their content alone."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvpacket_store.api.incoming import checked_document, content_hash
from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store import SegmentRef
from kvpacket_store.types import Document, Text, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["GivenText", "GivenTokens", "is_filed"]

GivenTokens = dict[str, TokenIds]
"""Tokens of packets, by packet key: what is not stored is made from them."""

_INDENTED = "text/x-code"  # any media type of which the segments keep their indentation


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text as segments: what a manifest would say of them, and their tokens."""

    refs: list[SegmentRef]
    tokens: GivenTokens


class GivenText:
    """A text given with a question. It is cut and tokenized as an ingest would, once.

    Equal tokens make equal packet keys, so the packets of a stored document with the same text are
    found, and so is the packet of one segment where a text is that segment's.

    Parameters
    ----------
    item : Document or Text
        A text without an id gets one that its content makes.

    Raises
    ------
    DocumentError
        It cannot be filed as a document either.

    Examples
    --------
    >>> GivenText(Text("Ice floats.")).document.id
    'text-5601ff4fd18f20ac3615ba1b08a3d785'
    """

    def __init__(self, item: Document | Text) -> None:
        if isinstance(item, Document):
            self.document, self.has_id = checked_document(item), True
        else:
            unnamed = checked_document(Document("text", item.text, item.metadata))
            named = f"text-{content_hash(unnamed)[:32]}"
            self.document, self.has_id = replace(unnamed, id=named), False
        self._cuts: dict[str, _Cut] = {}

    def cut(self, store: Store, namespace: str) -> _Cut:
        """Return its segments; with the indentation of its first line where that is stored so.

        Raises
        ------
        DocumentError
            There is no text in it.
        """
        plain = self._cut(store, self.document)
        if not self._may_be_code or self._are_stored(store, namespace, plain):
            return plain
        metadata = {**self.document.metadata, "media_type": _INDENTED}
        indented = self._cut(store, replace(self.document, metadata=metadata))
        return indented if self._are_stored(store, namespace, indented) else plain

    def is_stored(self, store: Store, namespace: str) -> bool:
        """Whether the namespace knows of each of its packets."""
        return self._are_stored(store, namespace, self.cut(store, namespace))

    @property
    def _may_be_code(self) -> bool:
        """Whether a plain text would lose an indentation that code keeps."""
        return "media_type" not in self.document.metadata and self.document.text[:1] in (" ", "\t")

    def _cut(self, store: Store, document: Document) -> _Cut:
        kind = str(document.metadata.get("media_type"))
        if kind not in self._cuts:
            cut = _Cut([], {})
            for segment in store.segments(document):
                tokens = segment.token_ids
                key = store.prefiller.segment_key(tokens)
                cut.refs.append(SegmentRef(key, len(tokens), segment.start_char, segment.end_char))
                cut.tokens[key] = tokens
            self._cuts[kind] = cut
        return self._cuts[kind]

    @staticmethod
    def _are_stored(store: Store, namespace: str, cut: _Cut) -> bool:
        return all(is_filed(store, namespace, key) for key in cut.tokens)


def is_filed(store: Store, namespace: str, packet_key: str) -> bool:
    """Whether the namespace knows of a packet, even if its record was evicted or is damaged."""
    with contextlib.suppress(CodecError):
        try:
            store.packets.get_manifest(namespace, packet_key)
        except NotFoundError:
            return False
    return True
