"""A document and a packet as JSON of a bundle, and back: every field is looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvpacket_store.bundle.limits import BundleLimits
from kvpacket_store.errors import BundleError
from kvpacket_store.store import DocumentManifest, PacketManifest, SegmentRef
from kvpacket_store.types import TokenIds

__all__ = [
    "describe_document",
    "describe_packet",
    "parse_document",
    "parse_packet",
    "split_embeddings",
]

_PACKET_KEY = re.compile(r"[0-9a-f]{64}")
_MAX_ID_CHARS = 1000
_MAX_TEXT_CHARS = 1000
_COUNT_LIMIT = 1 << 53
_TOKEN_ID_LIMIT = 1 << 32
_DOCUMENT_FIELDS = {"id", "content_hash", "metadata_hash", "metadata", "segments"}
_PACKET_FIELDS = {"packet_key", "token_ids", "positions", "raw_bytes", "kv_digest", "engine"}


def describe_document(manifest: DocumentManifest) -> dict[str, Any]:
    """Return a document's JSON; its text travels beside it."""
    return {name: value for name, value in manifest.to_json().items() if name in _DOCUMENT_FIELDS}


def describe_packet(manifest: PacketManifest) -> dict[str, Any]:
    """Return a packet's JSON; its record travels beside it."""
    return {name: value for name, value in manifest.to_json().items() if name in _PACKET_FIELDS}


def parse_document(
    values: Mapping[str, Any], text: str, what: str, limits: BundleLimits
) -> DocumentManifest:
    """Read what `describe_document` gave.

    Raises
    ------
    BundleError
        A field is missing, unknown, of another kind or out of bounds.
    """
    _require(set(values) == _DOCUMENT_FIELDS, what, "fields")
    _require(_is_text(values["id"], _MAX_ID_CHARS), what, "id")
    for name in ("content_hash", "metadata_hash"):
        _require(_is_text(values[name], _MAX_TEXT_CHARS), what, name)
    _require(isinstance(values["metadata"], dict), what, "metadata")
    rows = values["segments"]
    _require(isinstance(rows, list) and len(rows) <= limits.max_segments, what, "segments")
    return DocumentManifest(
        id=values["id"],
        content_hash=values["content_hash"],
        metadata_hash=values["metadata_hash"],
        metadata=values["metadata"],
        segments=tuple(_segment(row, len(text), what) for row in rows),
        text=text,
    )


def parse_packet(values: Mapping[str, Any], packet_key: str, what: str) -> TokenIds:
    """Check what `describe_packet` gave; return its token ids.

    Raises
    ------
    BundleError
        A field is missing, unknown, of another kind or out of bounds, or it is another packet's.
    """
    _require(set(values) == _PACKET_FIELDS, what, "fields")
    _require(values["packet_key"] == packet_key, what, "packet_key")
    for name in ("kv_digest", "engine"):
        _require(_is_text(values[name], _MAX_TEXT_CHARS), what, name)
    for name in ("positions", "raw_bytes"):
        _require(_is_count(values[name], _COUNT_LIMIT), what, name)
    token_ids = values["token_ids"]
    _require(
        isinstance(token_ids, list) and all(_is_count(i, _TOKEN_ID_LIMIT) for i in token_ids),
        what,
        "token_ids",
    )
    return tuple(token_ids)


def split_embeddings(data: bytes, num_segments: int, what: str) -> list[bytes]:
    """Return the float32 values of each segment: equally long, one after the other."""
    step = len(data) // num_segments if num_segments else 0
    _require(step > 0 and step % 4 == 0 and step * num_segments == len(data), what, "length")
    return [data[start : start + step] for start in range(0, len(data), step)]


def _segment(row: object, num_chars: int, what: str) -> SegmentRef:
    match row:
        case [str(packet_key), int(tokens), int(start_char), int(end_char)] if (
            _PACKET_KEY.fullmatch(packet_key)
            and all(_is_count(number, _COUNT_LIMIT) for number in (tokens, start_char, end_char))
            and start_char <= end_char <= num_chars
        ):
            return SegmentRef(packet_key, tokens, start_char, end_char)
        case _:
            raise _refused(what, "segments")


def _is_text(value: object, max_chars: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= max_chars


def _is_count(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit


def _require(is_so: bool, what: str, field: str) -> None:
    if not is_so:
        raise _refused(what, field)


def _refused(what: str, field: str) -> BundleError:
    return BundleError(f"{what} of the bundle: its {field} cannot be right; export it again")
