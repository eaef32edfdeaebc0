"""An item ↔ its bin and what the bin leaves open, one scalar at a time, inlined into the kernels.

A bin is ``floor(|x| / step)``, negative ones counted from -1 down, where ``step`` is a power of two
(``docs/format.md`` §7.2). A bin at least one step from zero holds a power of two of values: the
**rest** of its mantissa. The two bins at zero also hold every smaller octave.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.codec.compiled import inlined

__all__ = [
    "MAX_BIN",
    "MAX_OCTAVES",
    "ItemLayout",
    "bin_of",
    "join_item",
    "look",
    "rest_of",
    "sizes_of",
]

MAX_BIN = 4095
MAX_OCTAVES = 11  # smaller items escape: one in 2**12 of those in the bins at zero


class ItemLayout(NamedTuple):
    """How a float's bits are divided."""

    mantissa_bits: int
    exponent_mask: int
    sign_shift: int


@cache
def sizes_of(mantissa_bits: int) -> npt.NDArray[np.uint32]:
    """Return, by bin from 0 on: rest bits (upper half), octave and mantissa (lower half)."""
    size = np.arange(MAX_BIN + 1)
    octave = np.maximum(np.frexp(np.maximum(size, 1))[1] - 1, 0)
    down, up = np.maximum(octave - mantissa_bits, 0), np.maximum(mantissa_bits - octave, 0)
    mantissa = (size << up >> down) & ((1 << mantissa_bits) - 1)
    packed: npt.NDArray[np.int64] = up << 16 | octave << mantissa_bits | mantissa
    return packed.astype(np.uint32)


@inlined
def bin_of(item: Any, step: Any, layout: Any) -> Any:
    """Return an item's bin, saturated, and whether the item must escape."""
    mantissa_bits, exponent_mask, sign_shift = layout
    mask = (1 << mantissa_bits) - 1
    exponent = (item >> mantissa_bits) & exponent_mask
    mantissa = (item & mask) | (mask + 1)
    up = exponent - step
    octaves = -1 - up
    is_finite = exponent != exponent_mask
    size, escapes = 0, exponent == 0 or not is_finite or octaves > MAX_OCTAVES
    if not is_finite or up > 12:
        size = MAX_BIN + 1
    elif up >= mantissa_bits:
        size = mantissa << (up - mantissa_bits)
    elif up >= 0:
        size = mantissa >> (mantissa_bits - up)
    if size > MAX_BIN:
        size, escapes = MAX_BIN, True
    return (-1 - size if item >> sign_shift else size), escapes


@inlined
def rest_of(item: Any, step: Any, layout: Any) -> Any:
    """Return what its bin leaves open of an item that does not escape, and in how many bits."""
    mantissa_bits, exponent_mask, _ = layout
    mask = (1 << mantissa_bits) - 1
    up = ((item >> mantissa_bits) & exponent_mask) - step
    if up >= 0:
        bits = max(mantissa_bits - up, 0)
        return item & ((1 << bits) - 1), bits
    octaves = -1 - up
    return ((item & mask) << 1 | 1) << octaves, mantissa_bits + 1 + octaves


@inlined
def look(words: Any, position: Any) -> Any:
    """Return 32 bits or more of a row of 32-bit words from bit ``position`` on."""
    at = position >> np.uint64(5)
    both = np.uint64(words[at]) | np.uint64(words[at + np.uint64(1)]) << np.uint64(32)
    return both >> (position & np.uint64(31))


@inlined
def join_item(found: Any, seen: Any, step: Any, layout: Any, sizes: Any) -> Any:
    """Return the item of a bin and the bits that follow, and how many of them are its rest."""
    mantissa_bits, exponent_mask, sign_shift = layout
    sign = (found >> 63) & 1
    size = found ^ (found >> 63)  # -1 - found of a negative one
    if size > 0:
        entry = np.int64(sizes[np.uint64(size)])
        bits = entry >> 16
        magnitude = (step << mantissa_bits) + (entry & 65535)
        magnitude |= np.int64(seen) & ((1 << bits) - 1)
        return (magnitude & ((1 << sign_shift) - 1)) | sign << sign_shift, bits
    octaves = 0
    while octaves < MAX_OCTAVES and (np.int64(seen) >> octaves) & 1 == 0:
        octaves += 1
    mantissa = np.int64(seen) >> (octaves + 1) & ((1 << mantissa_bits) - 1)
    magnitude = (((step - 1 - octaves) & exponent_mask) << mantissa_bits) | mantissa
    return magnitude | sign << sign_shift, octaves + 1 + mantissa_bits
