"""A chunk's items ↔ its rANS body, as ``docs/format.md`` §5 lays it out.

Sections are found and checked here; the loops over scalars are ``rans_encode`` and ``rans_decode``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray, KVDtype

from .checksum import Bytes
from .scratch import scratch
from .tables import coder

__all__ = ["decode_body", "encode_body"]

HEAD = struct.Struct("<BBBBI")  # base exponent, delta bits, zero bits, reserved, escapes
LANES = 32
MAX_DELTA_BITS = 8
SHAPE_BITS = 5  # table and flip of a channel; the rest of what is said of it is its exponent
EXPONENT_BITS = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}
_COUNTED_TOKENS = 128  # as many tell a channel's shape; all of 256 would save 0.01 bit


Channels: TypeAlias = tuple[BitArray, BitArray, BitArray]


class Layout(NamedTuple):
    """How an item of a KV dtype splits into sign, magnitude (exponent and a mantissa bit), rest."""

    low_bits: int
    magnitude_mask: int
    sign_shift: int


def layout_of(kv_dtype: KVDtype) -> Layout:
    """Return the layout of a KV dtype's items."""
    exponent_bits = EXPONENT_BITS[kv_dtype]
    sign_shift = 8 * kv_dtype.itemsize_bytes - 1
    return Layout(sign_shift - exponent_bits - 1, (2 << exponent_bits) - 1, sign_shift)


def low_bytes(num_items: int, width: int) -> int:
    """Return the bytes that ``width`` low bits of every item take."""
    parts = [(num_items * bits + 7) // 8 for bits in (4, 2, 1) if width & bits]
    return num_items * (width // 8) + sum(parts)


def encode_body(chunk: BitArray, kv_dtype: KVDtype, kernels: Any = None) -> bytes | None:
    """Return the body of a contiguous chunk [H, T, D], or None where it would not be shorter.

    ``kernels`` are the compiled ones unless the reference's are handed in.
    """
    kernels = kernels or _compiled()
    shape, items, layout = chunk.shape, chunk.reshape(-1), layout_of(kv_dtype)
    num_channels, limit = shape[0] * shape[2], chunk.nbytes
    lanes_at = HEAD.size + -(-num_channels * (SHAPE_BITS + MAX_DELTA_BITS) // 8)
    room = scratch("body", (lanes_at + limit,), np.uint8)
    base, width, channels = _describe(items, shape, layout, room[HEAD.size :], kernels)
    lanes_at = HEAD.size + -(-num_channels * width // 8)
    zero_bits = _zero_bits(items, layout.low_bits)
    low_width = layout.low_bits - zero_bits
    low = scratch("low", (low_bytes(items.size, low_width),), np.uint8)
    symbols = _symbols(items.size)
    if _is_usual(kv_dtype, zero_bits, items.size):
        kernels.split_bf16(items, shape, channels, symbols, low)
    else:
        kernels.split_symbols(items, shape, tuple(layout), channels, symbols)
        kernels.split_low_bits(items, zero_bits, low_width, low)
    lanes_bytes = _encode_lanes(symbols, shape, channels[0], room[lanes_at:], kernels)
    if lanes_bytes < 0:
        return None
    end = lanes_at + lanes_bytes
    escapes = scratch("escapes", (items.size,), np.uint16)
    num_escapes = kernels.take_escapes(items, symbols, tuple(layout), escapes)
    if end + 2 * num_escapes + len(low) >= limit:
        return None
    HEAD.pack_into(room.data, 0, base, width - SHAPE_BITS, zero_bits, 0, num_escapes)
    return b"".join([room[:end].data, escapes[:num_escapes].data, low.data])


def _is_usual(kv_dtype: KVDtype, zero_bits: int, num_items: int) -> bool:
    """Say whether the kernels for bf16 can take these items."""
    return kv_dtype is KVDtype.BF16 and zero_bits == 0 and num_items % 4 == 0


def _symbols(num_items: int) -> BitArray:
    """Return room for a symbol of each item, filled up to eight, as escapes are looked for."""
    return scratch("symbols", (-(-num_items // 8) * 8,), np.uint8)


def _compiled() -> Any:
    from . import rans_kernels  # numba takes 0.4 s to import: not before it is needed

    return rans_kernels


def _describe(
    items: BitArray, shape: tuple[int, ...], layout: Layout, said: BitArray, kernels: Any
) -> tuple[int, int, Channels]:
    """Choose and write what is said of the channels: base exponent, bits a channel, channels."""
    num_channels, every = shape[0] * shape[2], max(1, shape[1] // _COUNTED_TOKENS)
    highest = np.empty(num_channels, np.int64)
    counts = scratch("counts", (128 * num_channels,), np.uint8)
    plain = tuple(layout)  # numba takes long to look at a named one
    kernels.find_highest(items, shape, plain, every, highest)
    if items.dtype == np.uint16 and layout.low_bits == 6:
        kernels.count_bf16(items, shape, every, highest, counts)
    else:
        kernels.count(items, shape, plain, every, highest, counts)
    channels = _channels(num_channels, items.dtype)
    num_counted, costs = -(-shape[1] // every), coder().costs
    base, width = kernels.choose(counts, highest, num_counted, plain, costs, channels, said)
    return base, width, channels


def _channels(num_channels: int, dtype: npt.DTypeLike) -> Channels:
    """Return tables, and tops and flips where magnitude and sign stand in an item."""
    tops, flips = np.empty(num_channels, dtype), np.empty(num_channels, dtype)
    return np.empty(num_channels, np.uint64), tops, flips


def _encode_lanes(
    symbols: BitArray, shape: tuple[int, ...], tables: BitArray, body: BitArray, kernels: Any
) -> int:
    """Write states, lengths and words of all lanes; return their bytes, or -1."""
    num_lanes = min(LANES, len(tables))
    states, places = np.empty(num_lanes, np.uint64), np.empty(num_lanes, np.uint64)
    capacity = -(-len(tables) // LANES) * shape[1] + 1
    words = scratch("words", (num_lanes * capacity,), np.uint16)
    ranges, lanes = (coder().ranges, coder().reciprocals), (states, places, words)
    kernels.encode_lanes(lanes, shape, tables, ranges, symbols)
    return int(kernels.write_lanes(lanes, body))


def _zero_bits(items: BitArray, low_bits: int) -> int:
    """Return how many low bits, of ``low_bits`` at most, no item has set."""
    together = int(np.bitwise_or.reduce(items[:64])) | 1 << low_bits
    if not together & 1:
        together |= int(np.bitwise_or.reduce(items))
    return (together & -together).bit_length() - 1


def decode_body(body: Bytes, out: BitArray, kv_dtype: KVDtype, kernels: Any = None) -> None:
    """Write the chunk of a body into a contiguous ``out`` [H, T, D] that is not empty.

    Raises
    ------
    CorruptRecordError
        The body does not hold together. A body that does may still be another chunk's: the checksum
        of the items is the caller's to compare.
    """
    kernels = kernels or _compiled()
    shape, items, layout = out.shape, out.reshape(-1), layout_of(kv_dtype)
    num_channels, plain = shape[0] * shape[2], tuple(layout)
    found = _find_sections(body, num_channels, items.size, layout)
    channels, width = _channels(num_channels, out.dtype), SHAPE_BITS + found.delta_bits
    if not kernels.read_channels(found.said, found.base, width, plain, channels):
        raise _damaged("it uses reserved values")
    symbols = _symbols(items.size)
    _decode_lanes(found, shape, channels[0], symbols, kernels)
    if _is_usual(kv_dtype, found.zero_bits, items.size):
        kernels.join_bf16(found.low, symbols, shape, channels, items)
    else:
        kernels.join_low_bits(found.low, layout.low_bits - found.zero_bits, items)
        kernels.join_symbols(symbols, shape, plain, channels, found.zero_bits, items)
    if not kernels.place_escapes(found.escapes, symbols, plain, items):
        raise _damaged("its escapes are not those of its symbols")


class _Sections(NamedTuple):
    base: int
    delta_bits: int
    zero_bits: int
    said: BitArray
    lane_heads: BitArray
    words: BitArray
    escapes: BitArray
    low: BitArray


def _find_sections(body: Bytes, num_channels: int, num_items: int, layout: Layout) -> _Sections:
    """Place every section inside the body; what they hold is not looked at."""
    view = np.frombuffer(memoryview(body).toreadonly(), np.uint8)  # one type for the kernels
    if len(body) < HEAD.size:
        raise _damaged("it is too short")
    base, delta_bits, zero_bits, reserved, num_escapes = HEAD.unpack_from(body)
    if (
        base > layout.magnitude_mask >> 1
        or delta_bits > MAX_DELTA_BITS
        or zero_bits > layout.low_bits
    ):
        raise _damaged("it uses reserved values")
    heads = HEAD.size + -(-num_channels * (SHAPE_BITS + delta_bits) // 8)
    words = heads + 6 * min(LANES, num_channels)
    low = len(body) - low_bytes(num_items, layout.low_bits - zero_bits)
    escapes = low - 2 * num_escapes
    if reserved or escapes < words or (escapes - words) % 2:
        raise _damaged("its sections do not fill it")
    said, lane_heads = view[HEAD.size : heads], view[heads:words]
    stored, escaped = view[words:escapes], view[escapes:low]
    return _Sections(base, delta_bits, zero_bits, said, lane_heads, stored, escaped, view[low:])


def _decode_lanes(
    found: _Sections, shape: tuple[int, ...], tables: BitArray, symbols: BitArray, kernels: Any
) -> None:
    num_lanes = min(LANES, len(tables))
    # a damaged lane takes a word a symbol at most: zeros stand where it would read past the end
    room = -(-len(tables) // LANES) * shape[1] + 1
    words = scratch("words", (len(found.words) // 2 + room,), np.uint16)
    lanes = (np.empty(num_lanes, np.uint64), np.empty(num_lanes + 1, np.uint64), words)
    if not kernels.read_lanes(found.lane_heads, found.words, lanes):
        raise _damaged("its lanes do not fill it")
    if not kernels.decode_lanes(lanes, shape, tables, coder().slots, symbols):
        raise _damaged("a lane ends early or late")


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"a chunk's rANS body is damaged: {reason}")
