"""One plane ↔ one stream: as it is, or through zstandard, checksummed on both sides."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import zstandard

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray

from .checksum import Bytes, checksum
from .frame import Encoding, StreamEntry

__all__ = ["Stream", "load_plane", "store_plane", "store_smallest"]

# Entropy coding is all that helps on K and V: matches cost size (default level 3: 3.2 bits an
# exponent, this: 2.77) and half of the speed. 2**15 is also the block, so tables follow the head.
_PARAMETERS = zstandard.ZstdCompressionParameters(
    strategy=zstandard.STRATEGY_FAST,
    window_log=15,
    hash_log=6,
    chain_log=6,
    search_log=1,
    min_match=7,
    target_length=0,
    write_content_size=True,
)
_MAX_STORED_SHARE = 0.98  # decoding time is worth more than the last 2 %
_local = threading.local()  # zstandard's objects must not be shared between threads


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream's bytes and its row of the table, whose offset the record decides."""

    data: Bytes
    entry: StreamEntry


def store_plane(plane: BitArray) -> Stream:
    """Return a contiguous plane as it is."""
    data = _bytes_of(plane)
    total = checksum(data)
    return Stream(data, StreamEntry(0, len(data), len(data), total, total, Encoding.RAW))


def store_smallest(plane: BitArray) -> Stream:
    """Return a contiguous plane compressed where that saves 2 % or more, else as it is."""
    if plane.nbytes == 0:
        return store_plane(plane)
    decoded = _bytes_of(plane)
    data = _compressor().compress(decoded)
    if len(data) > _MAX_STORED_SHARE * len(decoded):
        return store_plane(plane)
    return Stream(
        data,
        StreamEntry(0, len(data), len(decoded), checksum(data), checksum(decoded), Encoding.ZSTD),
    )


def load_plane(entry: StreamEntry, record: memoryview) -> Bytes:
    """Return the plane's bytes; they may be a view into ``record``.

    Raises
    ------
    CorruptRecordError
        A checksum does not hold, or zstandard refuses the stream.
    """
    data = record[entry.offset : entry.offset + entry.length]
    if checksum(data) != entry.stored_checksum:
        raise _damaged(entry, "fails its checksum")
    if entry.encoding is Encoding.RAW:
        return data
    plane = _decompress(entry, data)
    if len(plane) != entry.decoded_length or checksum(plane) != entry.decoded_checksum:
        raise _damaged(entry, "decodes to other bytes than were stored")
    return plane


def _decompress(entry: StreamEntry, data: memoryview) -> bytes:
    try:
        # a frame of 13 bytes can declare a terabyte, and zstandard allocates what it declares
        if zstandard.frame_content_size(data) != entry.decoded_length:
            raise _damaged(entry, "declares another length than the stream table")
        return _decompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(entry, f"is refused by zstandard ({error})") from error


def _damaged(entry: StreamEntry, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"record is damaged: the stream at byte {entry.offset} {reason}; "
        "prefill this packet again from its token ids"
    )


def _bytes_of(plane: BitArray) -> memoryview:
    return plane.reshape(-1).view(np.uint8).data


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor
