"""K and V → record. What was written is decoded and compared before it is returned."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from kvpacket_store.errors import CodecError, CorruptRecordError, UsageError
from kvpacket_store.types import BitArray, KVDtype

from .arrays import require_kv_dtype, require_pair
from .decoder import DEFAULT_MAX_BYTES, read_chunk
from .frame import Frame, head_bytes, pack_head, parse_head
from .registry import require_level
from .scratch import scratch
from .streams import Stream
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

    The record is never longer than the raw bits by more than its head: 48 bytes, and 48 a stream.

    Parameters
    ----------
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns of equal shape; strides do not matter.
    kv_dtype : KVDtype or str
        ``"bf16"``, ``"fp16"``, ``"fp32"``, ``"fp8_e4m3"`` or ``"fp8_e5m2"``.
    level : str
        ``"fast"`` or ``"raw"``.
    pack : codec pack, optional
        Neither level takes one.

    Raises
    ------
    LevelUnavailableError
        The level is not in this version.
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
    coder = require_level(level)
    if pack is not None:
        raise UsageError(f"codec level {level!r} takes no codec pack; leave pack out")
    kv_dtype = require_kv_dtype(kv_dtype)
    require_pair(k, v, kv_dtype, DEFAULT_MAX_BYTES)
    chunks = list(itertools.product(range(k.shape[0]), range(2)))
    streams: list[list[Stream]] = [[] for _ in chunks]

    def write(index: int) -> None:
        layer, side = chunks[index]
        chunk = np.ascontiguousarray((k, v)[side][layer], kv_dtype.bits_dtype)
        streams[index] = coder.encode_chunk(chunk)

    for_each(write, range(len(chunks)), num_bytes=2 * k.nbytes)
    shape = (k.shape[0], k.shape[1], k.shape[2], k.shape[3])
    record = _assemble(level, kv_dtype, shape, list(itertools.chain.from_iterable(streams)))
    _require_equal(record, k, v)
    return record


def _assemble(
    level: str, kv_dtype: KVDtype, shape: tuple[int, int, int, int], streams: list[Stream]
) -> bytes:
    lengths = (stream.entry.length for stream in streams)
    offsets = itertools.accumulate(lengths, initial=head_bytes(len(streams)))
    entries = tuple(
        replace(stream.entry, offset=offset)
        for stream, offset in zip(streams, offsets, strict=False)  # the last offset is the end
    )
    head = pack_head(Frame(level, kv_dtype, shape, entries))
    return b"".join([head, *(stream.data for stream in streams)])


def _require_equal(record: bytes, k: BitArray, v: BitArray) -> None:
    """Decode the finished bytes chunk by chunk, and compare while a chunk is in the cache."""
    view = memoryview(record)
    frame = parse_head(view)

    def check(chunk: tuple[int, int]) -> None:
        layer, side = chunk
        source = (k, v)[side][layer]
        decoded = scratch("decoded", source.shape, frame.kv_dtype.bits_dtype)
        read_chunk(view, frame, layer, side, decoded)
        if not np.array_equal(decoded, source):
            raise CodecError(f"layer {layer} decodes to other bits")

    try:
        chunks = itertools.product(range(frame.shape[0]), range(2))
        for_each(check, chunks, num_bytes=frame.raw_bytes)
    except CodecError as error:
        raise CorruptRecordError(
            f"what was encoded does not come back ({error}); check this machine's memory, try again"
        ) from error
