"""Decoding one chunk of level ``linear``: predict a group of channels, decode it, let it be context.

No index leaves its array whatever was read from a record: table numbers come from the pack, a lane
takes a word a symbol at most, and bit positions are held inside their row. ``reference`` is the
oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvpacket_store.codec.compiled import compiled, inlined
from .items import bin_of, join_item, look
from .lanes import pop_channel
from .multiply_tile import multiply_tile
from .shapes import BELOW, ESCAPE, ZERO

__all__ = ["decode_chunk", "let_be_context"]


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
        at = rows + np.int64(64) * (tile * context.shape[1] + first_pair)
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
def write_context(found: Any, channel: Any, context: Any, row: int) -> None:
    """Let a channel's bins be context for all that comes after it."""
    center, down = channel
    half, pair, odd = (1 << down) >> 1, row >> 1, row & 1
    for t in range(len(found)):
        value = (found[t] - center + half) >> down
        context[t >> 4, pair, t & 15, odd] = np.int16(min(max(value, -127), 127))


@inlined
def choose_coarse(predicted: Any, drop: int, first_table: int, which: Any) -> None:
    """Choose each symbol's table by where in its coarse bin the prediction lies."""
    mask = (1 << drop) - 1
    for t in range(len(predicted)):
        which[t] = (first_table + (predicted[t] & mask)) << 12


@inlined
def choose_fine(predicted: Any, coarse: Any, drop: int, first_table: int, which: Any) -> None:
    """Choose each symbol's table by how far the prediction lies from the coarse bin's start."""
    most = (1 << drop) - 1 + 2 * BELOW
    for t in range(len(predicted)):
        distance = predicted[t] - (coarse[t] << drop) + BELOW
        which[t] = (first_table + min(max(distance, 0), most)) << 12


@inlined
def rebuild(predicted: Any, coarse: Any, drop: int, rebuilt: Any) -> None:
    """Rebuild bins without what was dropped: the prediction, held inside the coarse bin."""
    margin, most = (1 << drop) >> 2, (1 << drop) - 1
    for t in range(len(predicted)):
        start = coarse[t] << drop
        rebuilt[t] = min(max(predicted[t], start + margin), start + most - margin)


@inlined
def read_coarse(symbols: Any, predicted: Any, drop: int, coarse: Any) -> int:
    """Turn symbols into coarse bins; return how many escape."""
    escapes = 0
    for t in range(len(symbols)):
        symbol = np.int32(symbols[t])
        coarse[t] = (predicted[t] >> drop) + symbol - ZERO
        escapes += symbol == ESCAPE
    return escapes


@inlined
def read_escapes(symbols: Any, escaped: Any, at: int, numbers: Any, work: Any) -> Any:
    """Put escaped items in place, and their bins; return how many have been read by now."""
    step, drop, layout = numbers
    coarse, rebuilt, items = work
    for t in range(len(symbols)):
        if symbols[t] == ESCAPE:
            item = np.int64(escaped[min(at, len(escaped) - 1)])
            at += 1
            found, _ = bin_of(item, step, layout)
            rebuilt[t], coarse[t], items[t] = found, found >> drop, item
    return at


@inlined
def read_items(symbols: Any, fine: Any, rest: Any, position: Any, numbers: Any, items: Any) -> Any:
    """Complete all items that did not escape; return the bit position behind them."""
    step, layout, sizes = numbers
    last = np.uint64(32 * (len(rest) - 2))
    for t in range(len(symbols)):
        if symbols[t] != ESCAPE:
            seen = look(rest, min(position, last))
            found = np.int64(min(max(fine[t], -4096), 4095))
            item, bits = join_item(found, seen, step, layout, sizes)
            items[t] = item
            position += np.uint64(bits)
    return position


@inlined
def approximate(symbols: Any, rebuilt: Any, numbers: Any, items: Any) -> None:
    """Give every item that did not escape the middle of its rebuilt bin."""
    step, layout, sizes = numbers
    for t in range(len(symbols)):
        if symbols[t] != ESCAPE:
            found = np.int64(min(max(rebuilt[t], -4096), 4095))
            size = found if found >= 0 else -1 - found
            half = (np.int64(1) << (np.int64(sizes[size]) >> 16)) >> 1
            item, _ = join_item(found, half if size else np.int64(1), step, layout, sizes)
            items[t] = item


@compiled
def decode_chunk(
    geometry: Any, channels: Any, model: Any, context: Any, base: Any, rest: Any, outs: Any
) -> Any:
    """Decode a chunk [H, T, D]; return how far escapes and rest bits were read.

    Parameters
    ----------
    geometry : tuple
        Item layout, first context pair, first row of this side.
    channels : tuple of int32 [C] arrays
        Step, center, context shift, base, multiplier, shift, dropped bits, first coarse table, first
        fine table.
    model : tuple
        Matrices int16, starts int64 [groups], strides int64 [groups], slots uint32, sizes uint32.
    context : int16 [tiles, pairs, 16, 2]
        Rows before this side are read, this side's are written.
    base, rest : tuple
        Lanes (states, places, words), then escaped items or 32-bit words of rest bits.
    outs : tuple of uint16 [H, T, D]
        For the exact items, and for those rebuilt from the base alone; one of size 0 is not wanted.
    """
    layout, first_pair, first_row = geometry
    exact_out, base_out = outs
    _, num_tokens, head_dim = exact_out.shape if exact_out.size else base_out.shape
    steps, centers, shifts, bases, multipliers, downs, drops, coarse_tables, fine_tables = channels
    matrices, starts, strides, slots, sizes = model
    lanes, escaped = base
    fine_lanes, bits = rest
    sums = np.empty((16, 16 * context.shape[0]), np.int32)
    predicted, coarse, rebuilt = np.empty((3, num_tokens), np.int32)
    which, symbols = np.empty(num_tokens, np.uint64), np.empty(num_tokens, np.uint8)
    fine_symbols, items = np.zeros(num_tokens, np.uint8), np.empty(num_tokens, np.uint16)
    num_escaped, position = 0, np.uint64(0)
    for c in range(len(steps)):
        if c % 16 == 0:
            group = c // 16
            matrix = matrices[starts[group] : starts[group] + 16 * strides[group]]
            predict(matrix, strides[group], context, first_pair, sums)
        step, drop = np.int64(steps[c]), np.int64(drops[c])
        place(sums[c % 16], (bases[c], multipliers[c], np.int64(downs[c])), predicted)
        choose_coarse(predicted, drop, coarse_tables[c], which)
        pop_channel(lanes, which, slots, symbols)
        escapes = read_coarse(symbols, predicted, drop, coarse)
        rebuild(predicted, coarse, drop, rebuilt)
        if escapes:
            numbers, work = (step, drop, layout), (coarse, rebuilt, items)
            num_escaped = read_escapes(symbols, escaped, num_escaped, numbers, work)
        write_context(rebuilt, (centers[c], np.int64(shifts[c])), context, first_row + c)
        if base_out.size:
            approximate(symbols, rebuilt, (step, layout, sizes), items)
            base_out[c // head_dim, :, c % head_dim] = items
        if exact_out.size:
            if drop > 0:
                choose_fine(predicted, coarse, drop, fine_tables[c], which)
                pop_channel(fine_lanes, which, slots, fine_symbols)
                for t in range(num_tokens):
                    coarse[t] = (coarse[t] << drop) + np.int32(fine_symbols[t])
            position = read_items(symbols, coarse, bits, position, (step, layout, sizes), items)
            exact_out[c // head_dim, :, c % head_dim] = items
    return num_escaped, position


@compiled
def let_be_context(geometry: Any, channels: Any, context: Any, chunk: Any) -> None:
    """Write the context rows of a chunk [H, T, D] that was stored without prediction."""
    layout, _, first_row = geometry
    steps, centers, shifts = channels[0], channels[1], channels[2]
    _, num_tokens, head_dim = chunk.shape
    found = np.empty(num_tokens, np.int32)
    for c in range(len(steps)):
        for t in range(num_tokens):
            item = np.int64(chunk[c // head_dim, t, c % head_dim])
            found[t], _ = bin_of(item, np.int64(steps[c]), layout)
        write_context(found, (centers[c], np.int64(shifts[c])), context, first_row + c)
