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
def find_units(found: Any, channel: Any, units: Any) -> None:
    """Turn a channel's bins into context units int16 [T]."""
    center, down = channel
    half = (np.int32(1) << down) >> np.int32(1)
    for t in range(len(found)):
        value = (found[t] - center + half) >> down
        units[t] = np.int16(min(max(value, np.int32(-127)), np.int32(127)))


@inlined
def write_context(units: Any, context: Any, first_row: int) -> None:
    """Let a group's units int16 [16, 16 * tiles] be context for all that comes after it."""
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
def write_group(rows: Any, out: Any, first: int) -> None:
    """Write a group's items [16, T] to where they stand in ``out`` [H, T, D]."""
    num_heads, num_tokens, head_dim = out.shape
    num_rows = min(16, num_heads * head_dim - first)
    if head_dim % 16 == 0:  # a token's sixteen lie side by side: 0.6 ns an item, else 1.4
        part, column = out[first // head_dim], np.uint64(first % head_dim)
        for t in range(num_tokens):
            line = part[np.uint64(t)]
            for j in range(16):
                line[column + np.uint64(j)] = rows[np.uint64(j), np.uint64(t)]
    else:
        for j in range(num_rows):
            out[(first + j) // head_dim, :, (first + j) % head_dim] = rows[j]


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


@inlined
def read_coarse(symbols: Any, predicted: Any, drop: int, coarse: Any) -> int:
    """Turn symbols into coarse bins; return how many escape."""
    escapes = 0
    for t in range(len(symbols)):
        symbol = np.int32(symbols[t])
        coarse[t] = (predicted[t] >> drop) + symbol - np.int32(ZERO)
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
    for i in range(len(symbols)):
        t = np.uint64(i)
        if symbols[t] != ESCAPE:
            seen = look(rest, min(position, last))
            found = np.int64(min(max(fine[t], np.int32(-4096)), np.int32(4095)))
            item, bits = join_item(found, seen, step, layout, sizes)
            items[t] = item
            position += np.uint64(bits)
    return position


@inlined
def approximate(symbols: Any, rebuilt: Any, numbers: Any, items: Any) -> None:
    """Give every item that did not escape the middle of its rebuilt bin."""
    step, layout, sizes = numbers
    for i in range(len(symbols)):
        t = np.uint64(i)
        if symbols[t] != ESCAPE:
            found = np.int64(min(max(rebuilt[t], np.int32(-4096)), np.int32(4095)))
            size = found ^ (found >> 63)
            half = (np.int64(1) << (np.int64(sizes[np.uint64(size)]) >> 16)) >> 1
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
        Matrices int16, starts int64 [groups], strides int64 [groups], tables, sizes uint32.
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
    matrices, starts, strides, tables, sizes = model
    lanes, escaped = base
    fine_lanes, bits = rest
    sums = np.empty((16, 16 * context.shape[0]), np.int32)
    units = np.zeros((16, 16 * context.shape[0]), np.int16)
    predicted, coarse, rebuilt = np.empty((3, num_tokens), np.int32)
    which, symbols = np.empty(num_tokens, np.uint64), np.empty(num_tokens, np.uint8)
    fine_symbols, rows = np.empty(num_tokens, np.uint8), np.empty((2, 16, num_tokens), np.uint16)
    num_escaped, position = 0, np.uint64(0)
    for group in range(len(starts)):
        matrix = matrices[starts[group] : starts[group] + 16 * strides[group]]
        predict(matrix, strides[group], context, first_pair, sums)
        for j in range(min(16, len(steps) - 16 * group)):
            c, items = 16 * group + j, rows[0, j]
            step, drop = np.int64(steps[c]), drops[c]
            place(sums[j], (bases[c], multipliers[c], np.int64(downs[c])), predicted)
            choose_coarse(predicted, drop, coarse_tables[c], which)
            pop_channel(lanes, which, tables, symbols)
            escapes = read_coarse(symbols, predicted, drop, coarse)
            rebuild(predicted, coarse, drop, rebuilt)
            if escapes:
                numbers, work = (step, drop, layout), (coarse, rebuilt, items)
                num_escaped = read_escapes(symbols, escaped, num_escaped, numbers, work)
            find_units(rebuilt, (centers[c], shifts[c]), units[j])
            if base_out.size:
                rows[1, j] = items
                approximate(symbols, rebuilt, (step, layout, sizes), rows[1, j])
            if exact_out.size:
                if drop > 0:
                    choose_fine(predicted, coarse, drop, fine_tables[c], which)
                    pop_channel(fine_lanes, which, tables, fine_symbols)
                    for t in range(num_tokens):
                        coarse[t] = (coarse[t] << drop) + np.int32(fine_symbols[t])
                position = read_items(symbols, coarse, bits, position, (step, layout, sizes), items)
        units[min(16, len(steps) - 16 * group) :] = 0  # what the group before left
        write_context(units, context, first_row + 16 * group)
        if exact_out.size:
            write_group(rows[0], exact_out, 16 * group)
        if base_out.size:
            write_group(rows[1], base_out, 16 * group)
    return num_escaped, position


@compiled
def let_be_context(geometry: Any, channels: Any, context: Any, chunk: Any) -> None:
    """Write the context rows of a chunk [H, T, D] that was stored without prediction."""
    layout, _, first_row = geometry
    steps, centers, shifts = channels[0], channels[1], channels[2]
    _, num_tokens, head_dim = chunk.shape
    units = np.zeros((16, 16 * context.shape[0]), np.int16)
    found = np.empty(num_tokens, np.int32)
    for c in range(len(steps)):
        for t in range(num_tokens):
            item = np.int64(chunk[c // head_dim, t, c % head_dim])
            found[t], _ = bin_of(item, np.int64(steps[c]), layout)
        find_units(found, (centers[c], shifts[c]), units[c % 16])
        if c % 16 == 15 or c == len(steps) - 1:
            units[c % 16 + 1 :] = 0
            write_context(units, context, first_row + c // 16 * 16)
