"""What the store knows of a document, and the JSON of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store.packet_manifest import PacketRecord

__all__ = ["DocumentManifest", "DocumentWrite", "SegmentRef"]


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One segment of a document, and the packet that holds it.

    Parameters
    ----------
    packet_key : str
        64 hex characters.
    tokens : int
        Of the segment alone.
    start_char, end_char : int
        The span in the document's text.
    """

    packet_key: str
    tokens: int
    start_char: int
    end_char: int


@dataclass(frozen=True, slots=True)
class DocumentManifest:
    """A document as the store files it.

    Parameters
    ----------
    id : str
        1 to 1000 characters.
    content_hash, metadata_hash : str
        The caller's; the first decides whether packets must be made again.
    metadata : mapping
        JSON values.
    segments : tuple of SegmentRef
        In the order of the text.
    text : str or None
        To be given when the document is put; None when it is read (see ``document_text``).
    namespace : str or None
        Filled in by the store.
    is_pinned : bool
        Filled in by the store: its packets are never evicted.
    """

    id: str
    content_hash: str
    metadata_hash: str
    metadata: Mapping[str, Any]
    segments: tuple[SegmentRef, ...]
    text: str | None = field(default=None, repr=False)
    namespace: str | None = None
    is_pinned: bool = False

    @property
    def tokens(self) -> int:
        """Of all segments together."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def packet_keys(self) -> tuple[str, ...]:
        """Every packet once, in the order of first use."""
        return tuple(dict.fromkeys(segment.packet_key for segment in self.segments))

    def segments_of(self, packet_key: str) -> tuple[SegmentRef, ...]:
        """Return the segments that a packet holds: more than one where the text repeats itself."""
        return tuple(ref for ref in self.segments if ref.packet_key == packet_key)

    def to_json(self) -> dict[str, Any]:
        """Return what the row in table ``documents`` holds."""
        return {
            "id": self.id,
            "content_hash": self.content_hash,
            "metadata_hash": self.metadata_hash,
            "metadata": dict(self.metadata),
            "segments": [[s.packet_key, s.tokens, s.start_char, s.end_char] for s in self.segments],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], namespace: str) -> DocumentManifest:
        """Read what `to_json` gave."""
        try:
            return cls(
                id=values["id"],
                content_hash=values["content_hash"],
                metadata_hash=values["metadata_hash"],
                metadata=values["metadata"],
                segments=tuple(SegmentRef(*segment) for segment in values["segments"]),
                namespace=namespace,
            )
        except (KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"a document of namespace {namespace!r} has an unreadable manifest ({error!r}); "
                "ingest it again"
            ) from error


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """One document of a batch: the arguments of ``put_document``."""

    manifest: DocumentManifest
    records: Mapping[str, PacketRecord]
    embeddings: Sequence[bytes] | None = None
