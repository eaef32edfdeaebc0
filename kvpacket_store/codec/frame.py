"""What stands on the wire: header, stream table and its checksum. Mirrors ``docs/format.md``.

Bytes → a :class:`Frame` that has been checked against the actual length, field by field, before
anything is allocated. What the streams hold is not this module's business.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kvpacket_store.errors import (
    CorruptRecordError,
    TruncatedRecordError,
    UnsupportedFormatError,
)
from kvpacket_store.types import KVDtype

from .checksum import Bytes, checksum

__all__ = ["FORMAT_VERSION", "Encoding", "Frame", "StreamEntry", "pack_head", "parse_head"]

FORMAT_VERSION = 1
MAGIC = b"\x89KVR\r\n\x1a\n"  # not text, and any newline conversion shows
HEADER = struct.Struct("<8sHBBIIIIIQ")
ENTRY = struct.Struct("<QQQQQB7s")
CHECKSUM = struct.Struct("<Q")
LEVEL_CODES = {"raw": 0, "fast": 1}
DTYPE_CODES = {
    KVDtype.BF16: 1,
    KVDtype.FP16: 2,
    KVDtype.FP32: 3,
    KVDtype.FP8_E4M3: 4,
    KVDtype.FP8_E5M2: 5,
}
MAX_LAYERS = 65_535
MAX_ZSTD_RATIO = 1 << 15  # a zstd block gives at most 128 KiB for 4 bytes: what a length can earn
_LEVELS = {code: level for level, code in LEVEL_CODES.items()}
_DTYPES = {code: kv_dtype for kv_dtype, code in DTYPE_CODES.items()}
_REFILL = "prefill this packet again from its token ids"


class Encoding(enum.IntEnum):
    """How a stream's bytes become its plane."""

    RAW = 0
    ZSTD = 1


_ENCODINGS = {encoding.value: encoding for encoding in Encoding}


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One row of the stream table."""

    offset: int
    length: int
    decoded_length: int
    stored_checksum: int
    decoded_checksum: int
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class Frame:
    """A record's header and stream table, checked.

    Parameters
    ----------
    level : str
        Codec level that wrote the record.
    kv_dtype : KVDtype
        What the bit patterns mean.
    shape : tuple of int
        ``(L, H, T, D)`` of K and of V.
    entries : tuple of StreamEntry
        By layer, then K before V, then plane.
    """

    level: str
    kv_dtype: KVDtype
    shape: tuple[int, int, int, int]
    entries: tuple[StreamEntry, ...]

    @property
    def raw_bytes(self) -> int:
        """Bytes of K and V together, decoded."""
        return 2 * math.prod(self.shape) * self.kv_dtype.itemsize_bytes

    @property
    def head_bytes(self) -> int:
        """Bytes before the first stream."""
        return head_bytes(len(self.entries))

    def chunk(self, layer: int, side: int) -> tuple[StreamEntry, ...]:
        """Return the entries of one layer's K (``side`` 0) or V (1), plane by plane."""
        num_planes = len(plane_widths(self.level, self.kv_dtype))
        first = (2 * layer + side) * num_planes
        return self.entries[first : first + num_planes]


def plane_widths(level: str, kv_dtype: KVDtype) -> tuple[int, ...]:
    """Return bytes a scalar of each plane of a chunk: one whole plane, or one plane a byte."""
    item_bytes = kv_dtype.itemsize_bytes
    return (item_bytes,) if level == "raw" else (1,) * item_bytes


def head_bytes(num_streams: int) -> int:
    """Return the length of header, table and head checksum."""
    return HEADER.size + ENTRY.size * num_streams + CHECKSUM.size


def pack_head(frame: Frame) -> bytes:
    """Return header, table and checksum of a frame whose entries are complete."""
    body_bytes = sum(entry.length for entry in frame.entries)
    head = bytearray(
        HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            LEVEL_CODES[frame.level],
            DTYPE_CODES[frame.kv_dtype],
            *frame.shape,
            len(frame.entries),
            frame.head_bytes + body_bytes,
        )
    )
    for entry in frame.entries:
        head += ENTRY.pack(
            entry.offset,
            entry.length,
            entry.decoded_length,
            entry.stored_checksum,
            entry.decoded_checksum,
            entry.encoding,
            bytes(7),
        )
    return bytes(head + CHECKSUM.pack(checksum(head)))


def parse_head(record: memoryview) -> Frame:
    """Check everything that can be checked without decoding, and return the frame.

    Parameters
    ----------
    record : memoryview of bytes
        The whole record and nothing else.

    Raises
    ------
    UnsupportedFormatError
        Not a record, or one of a newer version.
    TruncatedRecordError
        The bytes end before the record does.
    CorruptRecordError
        A checksum, bound or reserved value does not hold.
    """
    _require_ours(record)
    _, _, level_code, dtype_code, *shape, num_streams, record_bytes = HEADER.unpack_from(record)
    table_end = HEADER.size + ENTRY.size * num_streams
    _require_bytes(record, table_end + CHECKSUM.size)
    (head_checksum,) = CHECKSUM.unpack_from(record, table_end)
    if checksum(record[:table_end]) != head_checksum:
        raise CorruptRecordError(f"record's head fails its checksum; {_REFILL}")
    if level_code not in _LEVELS or dtype_code not in _DTYPES:
        raise _newer(f"codec level {level_code} and KV dtype {dtype_code}")
    level, kv_dtype = _LEVELS[level_code], _DTYPES[dtype_code]
    _require_shape(shape, kv_dtype, num_streams, level)
    _require_bytes(record, record_bytes)
    if len(record) != record_bytes:
        raise _corrupt(f"{len(record) - record_bytes} bytes follow its end")
    widths = plane_widths(level, kv_dtype)
    plane_bytes = [width * math.prod(shape[1:]) for width in widths] * (2 * shape[0])
    entries = _parse_table(record[HEADER.size : table_end], plane_bytes, record_bytes)
    return Frame(level, kv_dtype, (shape[0], shape[1], shape[2], shape[3]), entries)


def _require_ours(record: memoryview) -> None:
    start = bytes(record[: len(MAGIC)])
    if start != MAGIC[: len(start)]:
        raise UnsupportedFormatError("these bytes are not a record of kvpacket-store")
    _require_bytes(record, HEADER.size)
    version = HEADER.unpack_from(record)[1]
    if version != FORMAT_VERSION:
        raise _newer(f"format version {version}")


def _require_bytes(record: Bytes, wanted_bytes: int) -> None:
    if len(record) < wanted_bytes:
        raise TruncatedRecordError(
            f"record ends after {len(record)} of at least {wanted_bytes} bytes; {_REFILL}"
        )


def _require_shape(shape: Sequence[int], kv_dtype: KVDtype, num_streams: int, level: str) -> None:
    # zeros count as one: arrays that hold nothing must still be shapes that can be made
    nonzero = math.prod(max(size, 1) for size in shape)
    if shape[0] > MAX_LAYERS or 2 * kv_dtype.itemsize_bytes * nonzero >= 1 << 63:
        raise _corrupt(f"shape {tuple(shape)} cannot be")
    if num_streams != 2 * shape[0] * len(plane_widths(level, kv_dtype)):
        raise _corrupt(f"{num_streams} streams for {shape[0]} layers")


def _parse_table(
    table: memoryview, plane_bytes: Sequence[int], record_bytes: int
) -> tuple[StreamEntry, ...]:
    entries = []
    end = head_bytes(len(plane_bytes))
    for decoded_length, row in zip(plane_bytes, ENTRY.iter_unpack(table), strict=True):
        offset, length, decoded, stored_checksum, decoded_checksum, code, reserved = row
        if code not in _ENCODINGS:
            raise _newer(f"stream encoding {code}")
        entry = StreamEntry(
            offset, length, decoded, stored_checksum, decoded_checksum, _ENCODINGS[code]
        )
        if entry.offset != end or reserved != bytes(7):
            raise _corrupt("its streams leave a hole, overlap, or use reserved bytes")
        if entry.decoded_length != decoded_length or not _is_earned(entry):
            raise _corrupt("a stream declares a length that it cannot have")
        end += entry.length
        entries.append(entry)
    if end != record_bytes:
        raise _corrupt("its streams do not fill it")
    return tuple(entries)


def _is_earned(entry: StreamEntry) -> bool:
    if entry.encoding is Encoding.RAW:
        same_checksum = entry.stored_checksum == entry.decoded_checksum
        return same_checksum and entry.length == entry.decoded_length
    return entry.length < entry.decoded_length <= MAX_ZSTD_RATIO * entry.length


def _corrupt(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"record is damaged: {reason}; {_REFILL}")


def _newer(what: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"record has {what}, unknown here; upgrade kvpacket-store, or {_REFILL}"
    )
