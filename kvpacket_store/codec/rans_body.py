"""A chunk's items ↔ its rANS body, as ``docs/format.md`` §5 lays it out.

What a body claims is checked here against its length; the loops are ``rans_encode`` and
``rans_decode``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray, KVDtype

from .checksum import Bytes
from .scratch import scratch
from .tables import coder

__all__ = ["decode_body", "encode_body"]

HEAD = struct.Struct("<BBBBI")  # base exponent, delta bits, zero bits, reserved, escapes
LANES = 32
SHAPE_BITS = 5  # table and flip of a channel; the rest of what is said of it is its exponent
EXPONENT_BITS = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}
_FAULTS = {
    1: "it uses reserved values",
    2: "its lanes do not fill it",
    3: "a lane ends early or late",
    4: "its escapes are not those of its symbols",
}


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
    if chunk.size == 0:
        return None
    kernels = kernels or _compiled()
    num_channels = chunk.shape[0] * chunk.shape[2]
    capacity = -(-num_channels // LANES) * chunk.shape[1] + 1
    symbols = scratch("symbols", (-(-chunk.size // 8) * 8,), np.uint8)
    words = scratch("words", (min(LANES, num_channels) * capacity,), np.uint16)
    body = scratch("body", (chunk.nbytes - 1,), np.uint8)
    tables = coder()
    length = kernels.encode_chunk(
        chunk.reshape(-1),
        (*chunk.shape, *layout_of(kv_dtype)),
        (tables.costs, tables.ranges, tables.reciprocals),
        (symbols, words),
        body,
    )
    return body[:length].tobytes() if length else None


def _compiled() -> Any:
    from . import rans_kernels  # numba takes 0.4 s to import: not before it is needed

    return rans_kernels


def decode_body(body: Bytes, out: BitArray, kv_dtype: KVDtype, kernels: Any = None) -> None:
    """Write the chunk of a body into a contiguous ``out`` [H, T, D] that is not empty.

    Raises
    ------
    CorruptRecordError
        The body does not hold together. A body that does may still be another chunk's: the checksum
        of the items is the caller's to compare.
    """
    kernels = kernels or _compiled()
    layout, num_items = layout_of(kv_dtype), out.size
    num_channels = out.shape[0] * out.shape[2]
    sections = _find_sections(body, num_channels, num_items, layout)
    # a damaged lane takes a word a symbol at most: zeros stand where it would read past the end
    room = -(-num_channels // LANES) * out.shape[1] + 1
    num_words = (sections.escapes - sections.words) // 2
    symbols = scratch("symbols", (-(-num_items // 8) * 8,), np.uint8)
    words = scratch("words", (num_words + room,), np.uint16)
    found = kernels.decode_chunk(
        np.frombuffer(memoryview(body).toreadonly(), np.uint8),
        tuple(sections),
        (*out.shape, *layout),
        coder().slots,
        (symbols, words),
        out.reshape(-1),
    )
    if found:
        raise _damaged(_FAULTS[found])


class _Sections(NamedTuple):
    """What a body's head says, and where its sections begin."""

    base: int
    channel_bits: int
    zero_bits: int
    lane_heads: int
    words: int
    escapes: int
    low: int


def _find_sections(body: Bytes, num_channels: int, num_items: int, layout: Layout) -> _Sections:
    """Place every section inside the body; what they hold is not looked at."""
    if len(body) < HEAD.size:
        raise _damaged("it is too short")
    base, delta_bits, zero_bits, reserved, num_escapes = HEAD.unpack_from(body)
    if base > layout.magnitude_mask >> 1 or delta_bits > 8 or zero_bits > layout.low_bits:
        raise _damaged("it uses reserved values")
    heads = HEAD.size + -(-num_channels * (SHAPE_BITS + delta_bits) // 8)
    words = heads + 6 * min(LANES, num_channels)
    low = len(body) - low_bytes(num_items, layout.low_bits - zero_bits)
    escapes = low - 2 * num_escapes
    if reserved or escapes < words or (escapes - words) % 2:
        raise _damaged("its sections do not fill it")
    return _Sections(base, SHAPE_BITS + delta_bits, zero_bits, heads, words, escapes, low)


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"a chunk's rANS body is damaged: {reason}")
