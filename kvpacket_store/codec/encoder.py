"""K and V → record. What was written is decoded and compared before it is returned."""

from __future__ import annotations

import numpy as np

from kvpacket_store.errors import CodecError, CorruptRecordError, UsageError
from kvpacket_store.types import BitArray, KVDtype

from .arrays import require_kv_dtype, require_pair
from .chunk_order import Chunk, block_tokens, chunks_of
from .chunks import StoredChunk
from .decoder import read_chunk
from .frame import Frame, pack_head, parse_head
from .layered_encoder import encode_whole
from .limits import DEFAULT_MAX_BYTES
from .registry import require_level
from .scratch import scratch
from .workers import for_each

__all__ = ["encode"]


def encode(
    k: BitArray,
    v: BitArray,
    *,
    kv_dtype: KVDtype | str,
    level: str = "fast",
    pack: object | None = None,
) -> bytes:
    """Return a record from which :func:`decode` gives back every bit.

    The record is never longer than the raw bits by more than its head: 48 bytes, and 24 a chunk of
    256 tokens.

    Parameters
    ----------
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns of equal shape; strides do not matter.
    kv_dtype : KVDtype or str
        ``"bf16"``, ``"fp16"``, ``"fp32"``, ``"fp8_e4m3"`` or ``"fp8_e5m2"``.
    level : str
        ``"linear"``, ``"fast"`` or ``"raw"``.
    pack : CodecPack, optional
        What level ``linear`` knows of the model; the other levels take none.

    Raises
    ------
    LevelUnavailableError
        The level is not in this version, or needs a pack.
    UsageError
        Arrays that are not bit patterns of ``kv_dtype`` [L, H, T, D], or more than 8 GiB of them.
    CorruptRecordError
        Decoding gave other bits than were encoded: faulty memory, or a fault of ours.

    Examples
    --------
    >>> k = np.zeros((2, 3, 100, 64), np.uint16)
    >>> len(encode(k, k, kv_dtype="bf16")) < k.nbytes // 50
    True
    """
    if level == "linear":
        return encode_whole(k, v, kv_dtype=kv_dtype, pack=pack)
    store = require_level(level)
    if pack is not None:
        raise UsageError(f"codec level {level!r} takes no codec pack; leave pack out")
    kv_dtype = require_kv_dtype(kv_dtype)
    require_pair(k, v, kv_dtype, DEFAULT_MAX_BYTES)
    shape = (k.shape[0], k.shape[1], k.shape[2], k.shape[3])
    chunks = chunks_of(shape)
    stored: list[StoredChunk] = [None] * len(chunks)  # type: ignore[list-item]

    def write(index: int) -> None:
        items = np.ascontiguousarray(_part((k, v), chunks[index]), kv_dtype.bits_dtype)
        stored[index] = store(items, kv_dtype)

    for_each(write, range(len(chunks)), num_bytes=2 * k.nbytes)
    record = _assemble(level, kv_dtype, shape, stored)
    _require_equal(record, k, v)
    return record


def _part(pair: tuple[BitArray, BitArray], chunk: Chunk) -> BitArray:
    """Return the items of a chunk [H, T, D]: a view."""
    side = pair[chunk.side]
    return side[chunk.layer, :, block_tokens(side.shape[2], chunk.block)]


def _assemble(
    level: str, kv_dtype: KVDtype, shape: tuple[int, int, int, int], stored: list[StoredChunk]
) -> bytes:
    frame = Frame(level, kv_dtype, shape, tuple(chunk.entry for chunk in stored))
    return b"".join([pack_head(frame), *(chunk.data for chunk in stored)])


def _require_equal(record: bytes, k: BitArray, v: BitArray) -> None:
    """Decode the finished bytes chunk by chunk, and compare while a chunk is in the cache."""
    view = memoryview(record)
    frame = parse_head(view)

    def check(chunk: Chunk) -> None:
        source = _part((k, v), chunk)
        decoded = scratch("decoded", source.shape, frame.kv_dtype.bits_dtype)
        read_chunk(view, frame, chunk, decoded)
        if not np.array_equal(decoded, source):
            raise CodecError(f"layer {chunk.layer} decodes to other bits")

    try:
        for_each(check, chunks_of(frame.shape), num_bytes=frame.raw_bytes)
    except CodecError as error:
        raise CorruptRecordError(
            f"what was encoded does not come back ({error}); check this machine's memory, try again"
        ) from error
