"""What stands on the wire: header, chunk table and its checksum. Mirrors ``docs/format.md``.

Bytes → a :class:`Frame` that has been checked against the actual length, field by field, before
anything is allocated. What the chunks hold is not this module's business.
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
from .chunk_order import Chunk, block_tokens, chunks_of, num_blocks
from .pack_section import PackSection, Part, section_bytes

__all__ = [
    "FORMAT_VERSION",
    "ChunkEntry",
    "Encoding",
    "Frame",
    "pack_head",
    "parse_head",
]

FORMAT_VERSION = 1
MAGIC = b"\x89KVR\r\n\x1a\n"  # not text, and any newline conversion shows
HEADER = struct.Struct("<8sHBBIIIIIQ")
ENTRY = struct.Struct("<QQQ")
CHECKSUM = struct.Struct("<Q")
LEVEL_CODES = {"raw": 0, "fast": 1, "linear": 2}
DTYPE_CODES = {
    KVDtype.BF16: 1,
    KVDtype.FP16: 2,
    KVDtype.FP32: 3,
    KVDtype.FP8_E4M3: 4,
    KVDtype.FP8_E5M2: 5,
}
MAX_LAYERS = 65_535
MAX_RATIO = 1 << 15  # no zstd block and no rANS body gives more bytes for one: what a length earns
MAX_LENGTH = (1 << 56) - 1
_LEVELS = {code: level for level, code in LEVEL_CODES.items()}
_DTYPES = {code: kv_dtype for kv_dtype, code in DTYPE_CODES.items()}
_REFILL = "prefill this packet again from its token ids"


class Encoding(enum.IntEnum):
    """How a chunk's stored bytes become its items."""

    RAW = 0
    ZSTD = 1
    RANS = 2
    LINEAR = 3
    NOTHING = 4


_ENCODINGS = {encoding.value: encoding for encoding in Encoding}
_WHOLE = (Encoding.RAW, Encoding.ZSTD, Encoding.RANS)
_ALLOWED = {
    ("raw", None): (Encoding.RAW,),
    ("fast", None): _WHOLE,
    ("linear", Part.WHOLE): (*_WHOLE, Encoding.LINEAR),
    ("linear", Part.BASE): (Encoding.RAW, Encoding.LINEAR),
    ("linear", Part.ENHANCEMENT): (Encoding.LINEAR, Encoding.NOTHING),
}
_CHECKSUM_OF_NOTHING = checksum(b"")


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One row of the chunk table, and where its bytes begin."""

    offset: int
    length: int
    encoding: Encoding
    stored_checksum: int
    decoded_checksum: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A record's header and chunk table, checked.

    Parameters
    ----------
    level : str
        Codec level that wrote the record.
    kv_dtype : KVDtype
        What the bit patterns mean.
    shape : tuple of int
        ``(L, H, T, D)`` of K and of V.
    entries : tuple of ChunkEntry
        By layer, then K before V, then block.
    section : PackSection, optional
        Of level ``linear`` alone.
    """

    level: str
    kv_dtype: KVDtype
    shape: tuple[int, int, int, int]
    entries: tuple[ChunkEntry, ...]
    section: PackSection | None = None

    @property
    def raw_bytes(self) -> int:
        """Bytes of K and V together, decoded."""
        return 2 * math.prod(self.shape) * self.kv_dtype.itemsize_bytes

    @property
    def head_bytes(self) -> int:
        """Bytes before the first chunk."""
        sections = section_bytes(LEVEL_CODES[self.level], self.shape[0])
        return HEADER.size + sections + ENTRY.size * len(self.entries) + CHECKSUM.size

    @property
    def part(self) -> Part | None:
        """Which layers the record has, of level ``linear``."""
        return self.section.part if self.section else None

    def chunk_bytes(self, chunk: Chunk) -> int:
        """Return the bytes of a chunk's items."""
        tokens = block_tokens(self.shape[2], chunk.block)
        num_tokens = len(range(tokens.start, tokens.stop))
        num_items = self.shape[1] * num_tokens * self.shape[3]
        return num_items * self.kv_dtype.itemsize_bytes

    def entry(self, chunk: Chunk) -> ChunkEntry:
        """Return a chunk's row."""
        blocks = num_blocks(self.shape[2])
        return self.entries[(2 * chunk.layer + chunk.side) * blocks + chunk.block]


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
    if frame.section:
        head += frame.section.to_bytes()
    for entry in frame.entries:
        code_and_length = entry.encoding << 56 | entry.length
        head += ENTRY.pack(code_and_length, entry.stored_checksum, entry.decoded_checksum)
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
    _, _, level_code, dtype_code, *shape, num_chunks, record_bytes = HEADER.unpack_from(record)
    table_start = HEADER.size + section_bytes(level_code, shape[0])
    table_end = table_start + ENTRY.size * num_chunks
    _require_bytes(record, table_end + CHECKSUM.size)
    (head_checksum,) = CHECKSUM.unpack_from(record, table_end)
    if checksum(record[:table_end]) != head_checksum:
        raise CorruptRecordError(f"record's head fails its checksum; {_REFILL}")
    if level_code not in _LEVELS or dtype_code not in _DTYPES:
        raise _newer(f"codec level {level_code} and KV dtype {dtype_code}")
    level, kv_dtype = _LEVELS[level_code], _DTYPES[dtype_code]
    _require_shape(shape, kv_dtype, num_chunks)
    _require_bytes(record, record_bytes)
    if len(record) != record_bytes:
        raise _corrupt(f"{len(record) - record_bytes} bytes follow its end")
    sizes = (shape[0], shape[1], shape[2], shape[3])
    section = _parse_section(record[HEADER.size : table_start])
    entries = _parse_table(record[table_start:table_end], table_end, record_bytes)
    frame = Frame(level, kv_dtype, sizes, entries, section)
    for chunk, entry in zip(chunks_of(sizes), entries, strict=True):
        if not _is_earned(entry, frame, frame.chunk_bytes(chunk)):
            raise _corrupt("a chunk declares a length or encoding that it cannot have")
    return frame


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


def _require_shape(shape: Sequence[int], kv_dtype: KVDtype, num_chunks: int) -> None:
    # zeros count as one: arrays that hold nothing must still be shapes that can be made
    nonzero = math.prod(max(size, 1) for size in shape)
    if shape[0] > MAX_LAYERS or 2 * kv_dtype.itemsize_bytes * nonzero >= 1 << 63:
        raise _corrupt(f"shape {tuple(shape)} cannot be")
    if num_chunks != 2 * shape[0] * num_blocks(shape[2]):
        raise _corrupt(f"{num_chunks} chunks for {shape[0]} layers of {shape[2]} tokens")


def _parse_section(data: memoryview) -> PackSection | None:
    if not data:
        return None
    section = PackSection.from_bytes(data)
    if section is None:
        raise _newer("a pack section with reserved values")
    return section


def _parse_table(table: memoryview, table_end: int, record_bytes: int) -> tuple[ChunkEntry, ...]:
    entries = []
    end = table_end + CHECKSUM.size
    for code_and_length, stored_checksum, decoded_checksum in ENTRY.iter_unpack(table):
        code, length = code_and_length >> 56, code_and_length & MAX_LENGTH
        if code not in _ENCODINGS:
            raise _newer(f"chunk encoding {code}")
        entries.append(ChunkEntry(end, length, _ENCODINGS[code], stored_checksum, decoded_checksum))
        end += length
    if end != record_bytes:
        raise _corrupt("its chunks do not fill it")
    return tuple(entries)


def _is_earned(entry: ChunkEntry, frame: Frame, decoded_bytes: int) -> bool:
    if entry.encoding not in _ALLOWED[frame.level, frame.part]:
        return False
    if entry.encoding is Encoding.NOTHING:
        checksums = entry.stored_checksum, entry.decoded_checksum
        return entry.length == 0 and checksums == (_CHECKSUM_OF_NOTHING,) * 2
    if entry.encoding is Encoding.RAW:
        same_checksum = entry.stored_checksum == entry.decoded_checksum
        return same_checksum and entry.length == decoded_bytes
    return entry.length < decoded_bytes <= MAX_RATIO * entry.length


def _corrupt(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"record is damaged: {reason}; {_REFILL}")


def _newer(what: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"record has {what}, unknown here; upgrade kvpacket-store, or {_REFILL}"
    )
