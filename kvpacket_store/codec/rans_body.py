"""A chunk's items ↔ its rANS body, as ``docs/format.md`` §5 lays it out.

Sections are found and checked here; the loops over scalars are ``rans_encode`` and ``rans_decode``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray, KVDtype

from .checksum import Bytes
from .scratch import scratch
from .tables import ESCAPE, coder

__all__ = ["decode_body", "encode_body"]

HEAD = struct.Struct("<BBBBI")  # base exponent, delta bits, zero bits, reserved, escapes
LANES = 32
STATE = 1 << 16  # where every lane begins to be encoded, and where its decoding must end
SHAPE_BITS = 5  # table and flip of a channel; the rest of what is said of it is its exponent
EXPONENT_BITS = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}
_MAX_LANE_WORDS = (1 << 16) - 1
_COUNTED_TOKENS = 128  # as many tell a channel's shape; all of 256 would save 0.01 bit


class Layout(NamedTuple):
    """How an item of a KV dtype splits into sign, magnitude (exponent and a mantissa bit), rest."""

    low_bits: int
    magnitude_mask: int


def layout_of(kv_dtype: KVDtype) -> Layout:
    """Return the layout of a KV dtype's items."""
    exponent_bits = EXPONENT_BITS[kv_dtype]
    return Layout(8 * kv_dtype.itemsize_bytes - exponent_bits - 2, (2 << exponent_bits) - 1)


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
    if items.size == 0:
        return None
    exponents, channels = _describe(items, shape, layout, kernels)
    symbols = scratch("symbols", items.shape, np.uint8)
    num_escapes = kernels.split_symbols(items, shape, layout, channels, symbols)
    lanes = _encode_lanes(symbols, shape, channels[0], kernels)
    if lanes is None:
        return None
    base, width = int(exponents.min()), SHAPE_BITS + int(np.ptp(exponents)).bit_length()
    said = _pack_channels(exponents - base, width, channels)
    escapes = _escapes(items, symbols, layout) if num_escapes else b""
    zero_bits = _zero_bits(items, layout.low_bits)
    low = scratch("low", (low_bytes(items.size, layout.low_bits - zero_bits),), np.uint8)
    kernels.split_low_bits(items, zero_bits, layout.low_bits - zero_bits, low)
    head = HEAD.pack(base, width - SHAPE_BITS, zero_bits, 0, num_escapes)
    body = b"".join([head, said, *lanes, escapes, low.data])
    return body if len(body) < chunk.nbytes else None


def _compiled() -> Any:
    from . import rans_kernels  # numba takes 0.4 s to import: not before it is needed

    return rans_kernels


def _describe(
    items: BitArray, shape: tuple[int, ...], layout: Layout, kernels: Any
) -> tuple[npt.NDArray[np.int64], tuple[BitArray, BitArray, BitArray]]:
    """Choose each channel's exponent, table and flip; any choice decodes, these are cheap."""
    num_channels, every = shape[0] * shape[2], max(1, shape[1] // _COUNTED_TOKENS)
    highest = np.zeros(num_channels, np.uint16)
    counts = np.zeros((num_channels, 2, 64), np.int32)
    kernels.find_highest(items, shape, layout, every, highest)
    kernels.count(items, shape, layout, every, highest, counts)
    usual, flips = np.empty(num_channels, np.int64), np.empty(num_channels, np.uint8)
    windows, chosen = np.zeros((num_channels, 80), np.float32), np.zeros(num_channels, np.int64)
    kernels.center(counts, highest, -(-shape[1] // every), usual, flips, windows)
    kernels.choose(windows, coder().costs, chosen)
    exponents = np.clip(usual + (chosen >> 4) - 1, 0, layout.magnitude_mask >> 1)
    tables, tops = (chosen & 15).astype(np.uint64), (2 * exponents + 1).astype(np.uint16)
    return exponents, (tables, tops, flips)


def _encode_lanes(
    symbols: BitArray, shape: tuple[int, ...], tables: BitArray, kernels: Any
) -> list[Bytes] | None:
    """Return states, lengths and words of all lanes; None where a length has over 16 bits."""
    num_lanes = min(LANES, len(tables))
    capacity = -(-len(tables) // LANES) * shape[1] + 1
    ends = capacity * np.arange(1, num_lanes + 1)
    states, places = np.full(num_lanes, STATE, np.uint64), ends.astype(np.uint64)
    words = scratch("words", (num_lanes * capacity,), np.uint16)
    kernels.encode_lanes(symbols, shape, tables, coder().ranges, (states, places, words))
    return _lane_sections(states, ends - places.astype(np.int64), words.reshape(num_lanes, -1))


def _lane_sections(
    states: BitArray, lengths: npt.NDArray[np.int64], words: BitArray
) -> list[Bytes] | None:
    """Return the sections of lanes whose words stand at the end of their rows."""
    if lengths.max() > _MAX_LANE_WORDS:
        return None
    runs = [row[len(row) - length :].data for row, length in zip(words, lengths, strict=True)]
    return [states.astype("<u4").data, lengths.astype("<u2").data, *runs]


def _pack_channels(
    deltas: npt.NDArray[np.int64], width: int, channels: tuple[BitArray, BitArray, BitArray]
) -> bytes:
    tables, _, flips = channels
    said = deltas << SHAPE_BITS | flips.astype(np.int64) << 4 | tables.astype(np.int64)
    bits = said[:, None] >> np.arange(width) & 1
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()


def _escapes(items: BitArray, symbols: BitArray, layout: Layout) -> bytes:
    escaping = items[np.flatnonzero(symbols & ESCAPE == ESCAPE)].astype(np.int64)
    return (escaping >> layout.low_bits & layout.magnitude_mask).astype("<u2").tobytes()


def _zero_bits(items: BitArray, low_bits: int) -> int:
    """Return how many low bits, of ``low_bits`` at most, no item has set."""
    together = int(np.bitwise_or.reduce(items)) | 1 << low_bits
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
    num_channels = shape[0] * shape[2]
    found = _find_sections(_read_only(body), num_channels, items.size, layout)
    tops, flips = np.empty(num_channels, np.uint16), np.empty(num_channels, np.uint8)
    channels = (np.empty(num_channels, np.uint64), tops, flips)
    width = SHAPE_BITS + found.delta_bits
    if not kernels.read_channels(found.said, found.base, width, layout, channels):
        raise _damaged("it uses reserved values")
    symbols = scratch("symbols", items.shape, np.uint8)
    _decode_lanes(found, shape, channels[0], symbols, kernels)
    kernels.join_low_bits(found.low, layout.low_bits - found.zero_bits, items)
    num_escapes = kernels.join_symbols(symbols, shape, layout, channels, found.zero_bits, items)
    if 2 * num_escapes != len(found.escapes):
        raise _damaged("its escapes are not those of its symbols")
    if num_escapes and not kernels.place_escapes(found.escapes, symbols, layout, items):
        raise _damaged("it has a magnitude that cannot be")


class _Sections(NamedTuple):
    base: int
    delta_bits: int
    zero_bits: int
    said: BitArray
    lane_heads: BitArray
    words: BitArray
    escapes: BitArray
    low: BitArray


def _read_only(body: Bytes) -> npt.NDArray[np.uint8]:
    view = np.frombuffer(body, np.uint8)
    view.flags.writeable = False  # one type for the kernels, whatever the buffer is
    return view


def _find_sections(
    body: npt.NDArray[np.uint8], num_channels: int, num_items: int, layout: Layout
) -> _Sections:
    """Place every section inside the body; what they hold is not looked at."""
    if len(body) < HEAD.size:
        raise _damaged("it is too short")
    base, delta_bits, zero_bits, reserved, num_escapes = HEAD.unpack_from(body.data)
    if base > layout.magnitude_mask >> 1 or delta_bits > 8 or zero_bits > layout.low_bits:
        raise _damaged("it uses reserved values")
    heads = HEAD.size + -(-num_channels * (SHAPE_BITS + delta_bits) // 8)
    words = heads + 6 * min(LANES, num_channels)
    low = len(body) - low_bytes(num_items, layout.low_bits - zero_bits)
    escapes = low - 2 * num_escapes
    if reserved or escapes < words or (escapes - words) % 2:
        raise _damaged("its sections do not fill it")
    said, lane_heads = body[HEAD.size : heads], body[heads:words]
    stored, escaped = body[words:escapes], body[escapes:low]
    return _Sections(base, delta_bits, zero_bits, said, lane_heads, stored, escaped, body[low:])


def _decode_lanes(
    found: _Sections, shape: tuple[int, ...], tables: BitArray, symbols: BitArray, kernels: Any
) -> None:
    num_lanes = min(LANES, len(tables))
    states, places, ends = np.empty((3, num_lanes), np.uint64)
    # a damaged lane takes a word a symbol at most: zeros stand where it would read past the end
    room = -(-len(tables) // LANES) * shape[1] + 1
    words = scratch("words", (len(found.words) // 2 + room,), np.uint16)
    lanes = (states, places, words)
    if not kernels.read_lanes(found.lane_heads, found.words, lanes, ends):
        raise _damaged("its lanes do not fill it")
    kernels.decode_lanes(lanes, shape, tables, coder().slots, symbols)
    if (states != STATE).any() or (places != ends).any():
        raise _damaged("a lane ends early or late")


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"a chunk's rANS body is damaged: {reason}")
