"""Bit patterns ↔ byte planes.

A float's bytes are rotated left by one bit, so that the sign goes to the bottom and, for bf16 and
fp32, the eight exponent bits stand alone in the top byte: the only part that compresses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvpacket_store.types import BitArray

from .scratch import scratch

__all__ = ["merge_planes", "split_planes"]


def split_planes(chunk: BitArray) -> list[npt.NDArray[np.uint8]]:
    """Return the byte planes of ``chunk``, the exponent's first.

    Parameters
    ----------
    chunk : uint8, uint16 or uint32, any shape
        Bit patterns. One-byte floats are one plane as they are.

    Returns
    -------
    list of uint8 arrays of the same shape

    Examples
    --------
    >>> [hex(p[0]) for p in split_planes(np.array([0xBF81], np.uint16))]  # -1.0078125 in bf16
    ['0x7f', '0x3']
    """
    bits = 8 * chunk.dtype.itemsize
    if bits == 8:
        return [chunk.astype(np.uint8, copy=False)]
    rotated = scratch("word", chunk.shape, chunk.dtype)
    other = scratch("other", chunk.shape, chunk.dtype)
    np.left_shift(chunk, 1, out=rotated)
    np.right_shift(chunk, bits - 1, out=other)
    rotated |= other
    planes = []
    for shift in range(bits - 8, -1, -8):
        np.right_shift(rotated, shift, out=other)
        planes.append(other.astype(np.uint8))
    return planes


def merge_planes(planes: Sequence[npt.NDArray[np.uint8]], out: BitArray) -> None:
    """Undo :func:`split_planes` into ``out``, which may have any strides."""
    bits = 8 * out.dtype.itemsize
    if bits == 8:
        np.copyto(out, planes[0])
        return
    # whole-word passes over a chunk that fits the cache: 3 GB/s a core, strided byte stores 1.9
    word = scratch("word", out.shape, out.dtype)
    other = scratch("other", out.shape, out.dtype)
    np.copyto(word, planes[0])
    for plane in planes[1:]:
        word <<= 8
        np.copyto(other, plane)
        word |= other
    np.left_shift(word, bits - 1, out=other)
    word >>= 1
    np.bitwise_or(word, other, out=out)
