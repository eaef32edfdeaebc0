"""One chunk's items ↔ its stored bytes, checksummed on both sides."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import zstandard

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray, KVDtype

from .checksum import Bytes, checksum
from .frame import ChunkEntry, Encoding
from .rans_body import decode_body, encode_body
from .scratch import scratch

__all__ = ["StoredChunk", "load_chunk", "store_fast", "store_raw"]

_local = threading.local()  # zstandard's objects must not be shared between threads


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's bytes and its row of the table, whose offset the record decides."""

    data: Bytes
    entry: ChunkEntry


def store_raw(chunk: BitArray, kv_dtype: KVDtype) -> StoredChunk:
    """Return a contiguous chunk [H, T, D] as it is."""
    del kv_dtype
    data = _bytes_of(chunk)
    total = checksum(data)
    return StoredChunk(data, ChunkEntry(0, len(data), Encoding.RAW, total, total))


def store_fast(chunk: BitArray, kv_dtype: KVDtype) -> StoredChunk:
    """Return a contiguous chunk [H, T, D] entropy-coded where that is shorter, else as it is."""
    if chunk.nbytes == 0:
        return store_raw(chunk, kv_dtype)
    if _is_constant(chunk):  # the low bits of floats are noise but here: nothing else is for zstd
        encoding, data = Encoding.ZSTD, _compressor().compress(_bytes_of(chunk))
    else:
        encoding, data = Encoding.RANS, encode_body(chunk, kv_dtype) or b""
    if not 0 < len(data) < chunk.nbytes:
        return store_raw(chunk, kv_dtype)
    decoded_checksum = checksum(_bytes_of(chunk))
    return StoredChunk(data, ChunkEntry(0, len(data), encoding, checksum(data), decoded_checksum))


def load_chunk(entry: ChunkEntry, record: memoryview, kv_dtype: KVDtype, out: BitArray) -> None:
    """Decode a chunk into ``out`` [H, T, D], of any strides.

    Raises
    ------
    CorruptRecordError
        A checksum does not hold, or the stored bytes cannot be decoded.
    """
    data = record[entry.offset : entry.offset + entry.length]
    if checksum(data) != entry.stored_checksum:
        raise _damaged(entry, "fails its checksum")
    if entry.encoding is Encoding.RAW:
        np.copyto(out, np.frombuffer(data, out.dtype).reshape(out.shape))
        return
    items = out if out.flags.carray else scratch("items", out.shape, out.dtype)
    if entry.encoding is Encoding.ZSTD:
        np.copyto(items, _decompress(entry, data, out))
    else:
        decode_body(data, items, kv_dtype)
    if checksum(_bytes_of(items)) != entry.decoded_checksum:
        raise _damaged(entry, "decodes to other items than were stored")
    if items is not out:
        np.copyto(out, items)


def _is_constant(chunk: BitArray) -> bool:
    items = chunk.reshape(-1)
    return bool(items[0] == items[-1]) and not np.any(items != items[0])


def _decompress(entry: ChunkEntry, data: memoryview, out: BitArray) -> BitArray:
    try:
        # a frame of 13 bytes can declare a terabyte, and zstandard allocates what it declares
        if zstandard.frame_content_size(data) != out.nbytes:
            raise _damaged(entry, "declares another length than its items have")
        decoded = _decompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(entry, f"is refused by zstandard ({error})") from error
    if len(decoded) != out.nbytes:
        raise _damaged(entry, "decodes to another length than it declares")
    return np.frombuffer(decoded, out.dtype).reshape(out.shape)


def _damaged(entry: ChunkEntry, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"record is damaged: the chunk at byte {entry.offset} {reason}; "
        "prefill this packet again from its token ids"
    )


def _bytes_of(chunk: BitArray) -> memoryview:
    return chunk.reshape(-1).view(np.uint8).data


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=1)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor
