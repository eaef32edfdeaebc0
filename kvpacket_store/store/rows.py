"""How a manifest or a text becomes one value: ``sha256 | kind | length | body``.

The digest runs over everything after it. ``kind`` is 0 for plain bytes and 1 for a zstd frame;
``length`` (uint32, little-endian) is that of the plain bytes, and what a frame says of itself has
to agree with it before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from typing import Any

import zstandard

from kvpacket_store.errors import CorruptRecordError, UnsupportedFormatError, UsageError

__all__ = ["MAX_ROW_BYTES", "json_bytes", "pack", "unpack", "unpack_json"]

MAX_ROW_BYTES = 256 << 20
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<BI")
_PLAIN, _ZSTD = 0, 1
_WORTH_COMPRESSING_BYTES = 512


class _Compressors(threading.local):
    """One of each a thread: they are costly to make, and not to be shared."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_local = _Compressors()


def json_bytes(value: Any) -> bytes:
    r"""Return the one JSON text of a value: keys sorted, no blanks, ASCII.

    Raises
    ------
    ValueError, TypeError, RecursionError
        NaN, infinities, and what JSON has no word for.

    Examples
    --------
    >>> json_bytes({"b": 1, "a": "é"})
    b'{"a":"\\u00e9","b":1}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def pack(payload: bytes) -> bytes:
    """Return the row that holds ``payload``.

    Examples
    --------
    >>> len(pack(b"a" * 10_000)) < 100
    True
    """
    if len(payload) > MAX_ROW_BYTES:
        raise UsageError(
            f"{len(payload)} bytes in one row are more than {MAX_ROW_BYTES}; split the document"
        )
    kind, body = _PLAIN, payload
    if len(payload) >= _WORTH_COMPRESSING_BYTES:
        frame = _local.compressor.compress(payload)
        if len(frame) < len(payload):
            kind, body = _ZSTD, frame
    rest = _HEAD.pack(kind, len(payload)) + body
    return hashlib.sha256(rest).digest() + rest


def unpack(row: bytes, what: str) -> bytes:
    """Return what `pack` was given.

    Parameters
    ----------
    row : bytes
        As stored.
    what : str
        For the message: ``"packet 12ab…"``.

    Raises
    ------
    CorruptRecordError
        The digest or a length does not hold; ingest the document again.
    UnsupportedFormatError
        A later version wrote it.
    """
    if len(row) < _DIGEST_BYTES + _HEAD.size:
        raise _damaged(what, f"{len(row)} bytes are too few")
    rest = row[_DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != row[:_DIGEST_BYTES]:
        raise _damaged(what, "the digest does not match")
    kind, length = _HEAD.unpack_from(rest)
    body = rest[_HEAD.size :]
    if length > MAX_ROW_BYTES:
        raise _damaged(what, f"it claims {length} bytes")
    if kind == _ZSTD:
        body = _decompress(body, length, what)
    elif kind != _PLAIN:
        raise UnsupportedFormatError(f"{what}: rows of kind {kind} need a later version")
    if len(body) != length:
        raise _damaged(what, f"{len(body)} bytes instead of {length}")
    return body


def unpack_json(row: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object that a row holds."""
    try:
        value = json.loads(unpack(row, what))
    except (ValueError, RecursionError) as error:
        raise _damaged(what, "it is not JSON") from error
    if not isinstance(value, dict):
        raise _damaged(what, "it is not a JSON object")
    return value


def _decompress(frame: bytes, length: int, what: str) -> bytes:
    try:
        if zstandard.frame_content_size(frame) != length:
            raise _damaged(what, "the zstd frame claims another length")
        return _local.decompressor.decompress(frame, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(what, f"zstd: {error}") from error


def _damaged(what: str, why: str) -> CorruptRecordError:
    return CorruptRecordError(f"{what} is damaged in the store: {why}; ingest its document again")
