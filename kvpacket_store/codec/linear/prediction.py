"""Predicting a group of channels from context, and what both directions do with a prediction.

Inlined into the kernels that decode and encode a chunk (``docs/format.md`` §7).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvpacket_store.codec.compiled import inlined

from .multiply_tile import multiply_tile
from .shapes import BELOW

__all__ = [
    "choose_coarse",
    "choose_fine",
    "find_units",
    "place",
    "predict",
    "rebuild",
    "write_context",
]


@inlined
def predict(matrix: Any, stride: int, context: Any, first_pair: int, sums: Any) -> None:
    """Write the sums int32 [16, T] of a group from the context rows before it."""
    num_tiles, num_pairs = context.shape[0], stride // 2
    if num_pairs == 0:
        sums[:] = 0
        return
    weights, rows = np.int64(matrix.ctypes.data), np.int64(context.ctypes.data)
    out, pitch = np.int64(sums.ctypes.data), np.int64(sums.shape[1])
    for tile in range(num_tiles):
        at = rows + np.int64(32) * (tile * context.shape[1] + first_pair)
        for row in range(0, 16, 4):
            multiply_tile(
                weights + np.int64(2) * stride * row,
                np.int64(stride),
                at,
                np.int64(num_pairs),
                out + np.int64(4) * (pitch * row + 16 * tile),
                pitch,
            )


@inlined
def place(sums: Any, channel: Any, predicted: Any) -> None:
    """Turn a channel's sums into predicted bins."""
    base, multiplier, down = channel
    constant = (np.int64(base) << (down - 8)) + (np.int64(1) << (down - 1))
    for t in range(len(predicted)):
        predicted[t] = np.int32((np.int64(sums[t]) * np.int64(multiplier) + constant) >> down)


@inlined
def find_units(found: Any, channel: Any, units: Any) -> None:
    """Turn a channel's bins into context units int8 [T]."""
    center, down = channel
    half = (np.int32(1) << down) >> np.int32(1)
    for t in range(len(found)):
        value = (found[t] - center + half) >> down
        units[t] = np.int8(min(max(value, np.int32(-127)), np.int32(127)))


@inlined
def write_context(units: Any, context: Any, first_row: int) -> None:
    """Let a group's units int8 [16, 16 * tiles] be context for all that comes after it."""
    flat, stride = context.reshape(-1), np.uint64(32 * context.shape[1])
    for pair in range(8):
        even, odd = units[2 * pair], units[2 * pair + 1]
        place = np.uint64(16 * first_row + 32 * pair)
        for tile in range(context.shape[0]):
            some = flat[place : place + np.uint64(32)]
            first = np.uint64(16 * tile)
            left, right = even[first : first + np.uint64(16)], odd[first : first + np.uint64(16)]
            for t in range(16):
                some[np.uint64(2 * t)] = left[np.uint64(t)]
                some[np.uint64(2 * t + 1)] = right[np.uint64(t)]
            place += stride


@inlined
def choose_coarse(predicted: Any, drop: int, first_table: int, which: Any) -> None:
    """Choose each symbol's table by where in its coarse bin the prediction lies."""
    mask = (np.int32(1) << drop) - np.int32(1)
    for t in range(len(predicted)):
        which[t] = np.uint64(first_table + (predicted[t] & mask))


@inlined
def choose_fine(predicted: Any, coarse: Any, drop: int, first_table: int, which: Any) -> None:
    """Choose each symbol's table by how far the prediction lies from the coarse bin's start."""
    most = (np.int32(1) << drop) + np.int32(2 * BELOW - 1)
    for t in range(len(predicted)):
        distance = predicted[t] - (coarse[t] << drop) + np.int32(BELOW)
        table = first_table + min(max(distance, np.int32(0)), most)
        which[t] = np.uint64(table)


@inlined
def rebuild(predicted: Any, coarse: Any, drop: int, rebuilt: Any) -> None:
    """Rebuild bins without what was dropped: the prediction, held inside the coarse bin."""
    width = np.int32(1) << drop
    margin, most = width >> np.int32(2), width - np.int32(1)
    for t in range(len(predicted)):
        start = coarse[t] << drop
        rebuilt[t] = min(max(predicted[t], start + margin), start + most - margin)
