"""Decoding one chunk of level ``linear``: a group of channels at a time, each the next context.

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
from .prediction import (
    choose_coarse,
    choose_fine,
    find_units,
    place,
    predict,
    rebuild,
    write_context,
)
from .shapes import ESCAPE, ZERO

__all__ = ["decode_chunk", "let_be_context"]


@inlined
def write_group(rows: Any, out: Any, first: int) -> None:
    """Write a group's items [16, T] to their places in ``out`` [H, T, D], unless it is empty."""
    if out.size == 0:
        return
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
            part, column = out[(first + j) // head_dim], (first + j) % head_dim
            for t in range(num_tokens):
                part[t, column] = rows[j, t]


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
def refine(lanes: Any, which: Any, tables: Any, drop: Any, coarse: Any) -> None:
    """Turn coarse bins into bins."""
    symbols = np.empty(len(coarse), np.uint8)
    pop_channel(lanes, which, tables, symbols)
    for t in range(len(coarse)):
        coarse[t] = (coarse[t] << drop) + np.int32(symbols[t])


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
def approximate(symbols: Any, rebuilt: Any, numbers: Any, escaped: Any, items: Any) -> None:
    """Give every item the middle of its rebuilt bin; those that escaped are as they are."""
    step, layout, sizes = numbers
    for i in range(len(symbols)):
        t = np.uint64(i)
        if symbols[t] == ESCAPE:
            items[t] = escaped[t]
        else:
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
        Step, center, context shift, base, multiplier, shift, dropped bits, first coarse table,
        first fine table.
    model : tuple
        Matrices int16, starts int64 [groups], strides int64 [groups], tables, sizes uint32.
    context : int8 [tiles, pairs, 16, 2]
        Rows before this side are read, this side's are written.
    base, rest : tuple
        Lanes (states, places, words), then escaped items or 32-bit words of rest bits.
    outs : tuple of uint16 [H, T, D]
        For the exact items, and for those rebuilt from the base alone; one of size 0 is not wanted.
    """
    layout, first_pair, first_row = geometry
    exact_out, base_out = outs
    num_tokens = exact_out.shape[1] if exact_out.size else base_out.shape[1]
    steps, centers, shifts, bases, multipliers, downs, drops, coarse_tables, fine_tables = channels
    matrices, starts, strides, tables, sizes = model
    (lanes, escaped), (fine_lanes, bits) = base, rest
    sums = np.empty((16, 16 * context.shape[0]), np.int32)
    units = np.zeros((16, 16 * context.shape[0]), np.int8)
    predicted, coarse, rebuilt = np.empty((3, num_tokens), np.int32)
    which, symbols = np.empty(num_tokens, np.uint64), np.empty(num_tokens, np.uint8)
    rows = np.empty((2, 16, num_tokens), np.uint16)
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
                approximate(symbols, rebuilt, (step, layout, sizes), items, rows[1, j])
            if exact_out.size:
                if drop > 0:
                    choose_fine(predicted, coarse, drop, fine_tables[c], which)
                    refine(fine_lanes, which, tables, drop, coarse)
                position = read_items(symbols, coarse, bits, position, (step, layout, sizes), items)
        units[min(16, len(steps) - 16 * group) :] = 0  # what the group before left
        write_context(units, context, first_row + 16 * group)
        write_group(rows[0], exact_out, 16 * group)
        write_group(rows[1], base_out, 16 * group)
    return num_escaped, position


@compiled
def let_be_context(geometry: Any, channels: Any, context: Any, chunk: Any) -> None:
    """Write the context rows of a chunk [H, T, D] that was stored without prediction."""
    layout, _, first_row = geometry
    steps, centers, shifts = channels[0], channels[1], channels[2]
    _, num_tokens, head_dim = chunk.shape
    units = np.zeros((16, 16 * context.shape[0]), np.int8)
    found = np.empty(num_tokens, np.int32)
    for c in range(len(steps)):
        for t in range(num_tokens):
            item = np.int64(chunk[c // head_dim, t, c % head_dim])
            found[t], _ = bin_of(item, np.int64(steps[c]), layout)
        find_units(found, (centers[c], shifts[c]), units[c % 16])
        if c % 16 == 15 or c == len(steps) - 1:
            units[c % 16 + 1 :] = 0
            write_context(units, context, first_row + c // 16 * 16)
