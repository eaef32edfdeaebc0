"""Record → K and V, equal bit for bit, or an error; never other bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray

from .checksum import Bytes
from .chunk_order import Chunk, block_tokens, chunks_of
from .chunks import load_chunk
from .frame import Frame, parse_head
from .layered_decoder import decode_whole
from .limits import DEFAULT_MAX_BYTES, require_allowed, view_of
from .workers import for_each

__all__ = ["DEFAULT_MAX_BYTES", "decode", "decode_into", "read_chunk"]


def decode(
    record: Bytes,
    *,
    packs: Sequence[object] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> tuple[BitArray, BitArray]:
    """Return the K and V that were encoded.

    Parameters
    ----------
    record : bytes-like
        The whole record and nothing else. Nothing of it is referred to afterwards.
    packs : sequence of CodecPack, optional
        Where to look for the pack of a ``linear`` record; the installed ones unless given.
    max_bytes : int
        Refuse records whose K and V together are larger than this, before allocating them.

    Returns
    -------
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns, C-contiguous and writable.

    Raises
    ------
    CorruptRecordError, TruncatedRecordError, UnsupportedFormatError
        Damaged, cut or foreign bytes; prefill the packet again from its token ids.
    LevelUnavailableError
        The record's codec pack is not here.
    UsageError
        The record is one of two layers; use ``decode_base`` or ``decode_layers``.

    Examples
    --------
    >>> from kvpacket_store.codec import decode, encode
    >>> k = np.arange(24, dtype=np.uint16).reshape(1, 2, 3, 4)
    >>> k2, v2 = decode(encode(k, k, kv_dtype="bf16"))
    >>> np.array_equal(k, k2) and np.array_equal(k, v2)
    True
    """
    view = view_of(record)
    frame = parse_head(view)
    require_allowed(frame, max_bytes)
    if frame.level == "linear":
        return decode_whole(view, frame, packs)
    # together they are large enough for huge pages: first touches cost a third of decoding else
    k, v = np.empty((2, *frame.shape), frame.kv_dtype.bits_dtype)
    _read_chunks(view, frame, (k, v))
    return k, v


def decode_into(
    record: Bytes, k_out: BitArray, v_out: BitArray, *, packs: Sequence[object] | None = None
) -> None:
    """Decode into arrays that the caller has, such as slots of an assembled cache.

    Parameters
    ----------
    record : bytes-like
        The whole record and nothing else.
    k_out, v_out : uint8, uint16 or uint32 [L, H, T, D]
        Of the record's shape and dtype, any strides, not overlapping. After an error their contents
        are undefined.
    packs : sequence of codec packs, optional
        As for :func:`decode`.

    Raises
    ------
    UsageError
        The arrays do not fit the record.
    CorruptRecordError, TruncatedRecordError, UnsupportedFormatError
        As for :func:`decode`.
    """
    view = view_of(record)
    frame = parse_head(view)
    for name, out in (("k_out", k_out), ("v_out", v_out)):
        _require_fitting(name, out, frame)
    if frame.level == "linear":
        k_out[...], v_out[...] = decode_whole(view, frame, packs)
    else:
        _read_chunks(view, frame, (k_out, v_out))


def read_chunk(record: memoryview, frame: Frame, chunk: Chunk, out: BitArray) -> None:
    """Decode one chunk into ``out`` [H, T, D], which has its tokens and no others."""
    load_chunk(frame.entry(chunk), record, frame.kv_dtype, out)


def _read_chunks(record: memoryview, frame: Frame, outs: tuple[BitArray, BitArray]) -> None:
    def read(chunk: Chunk) -> None:
        tokens = block_tokens(frame.shape[2], chunk.block)
        read_chunk(record, frame, chunk, outs[chunk.side][chunk.layer, :, tokens])

    for_each(read, chunks_of(frame.shape), num_bytes=frame.raw_bytes)


def _require_fitting(name: str, out: object, frame: Frame) -> None:
    wanted = frame.kv_dtype.bits_dtype
    if (
        not isinstance(out, np.ndarray)
        or out.dtype != wanted
        or out.shape != frame.shape
        or not out.flags.writeable
    ):
        raise UsageError(f"{name} must be a writable {wanted.name} array of shape {frame.shape}")
