"""Encoding one chunk of level ``linear``: what ``decode_kernel`` undoes, in the same order.

The symbols of all channels are found first, since each lane is encoded from its end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvpacket_store.codec.compiled import compiled, inlined

from .items import bin_of, rest_of
from .lanes import push_channel
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

__all__ = ["encode_lanes", "find_symbols"]


@inlined
def _find_bins(head: Any, column: int, items: Any, numbers: Any, found: Any, escaping: Any) -> None:
    step, layout = numbers
    for t in range(len(items)):
        items[t] = head[t, column]
        size, escapes = bin_of(np.int64(items[t]), step, layout)
        found[t], escaping[t] = size, escapes


@inlined
def _write_coarse(found: Any, predicted: Any, drop: int, escaping: Any, symbols: Any) -> int:
    """Write the symbols of bins; return how many escape, now including what lies too far."""
    escapes = 0
    for t in range(len(found)):
        symbol = (found[t] >> drop) - (predicted[t] >> drop) + ZERO
        far = escaping[t] or symbol < 0 or symbol >= ESCAPE
        escaping[t] = far
        symbols[t] = np.uint8(ESCAPE) if far else np.uint8(symbol)
        escapes += far
    return escapes


@inlined
def _append(words: Any, position: Any, value: Any, bits: Any) -> None:
    at, offset = position >> np.uint64(5), position & np.uint64(31)
    shifted = np.uint64(value) << offset
    words[at] |= np.uint32(shifted & np.uint64(0xFFFFFFFF))
    words[at + np.uint64(1)] |= np.uint32(shifted >> np.uint64(32))


@inlined
def _write_rest(
    items: Any, escaping: Any, step: Any, layout: Any, words: Any, position: Any
) -> Any:
    for i in range(len(items)):
        t = np.uint64(i)
        if not escaping[t]:
            value, bits = rest_of(np.int64(items[t]), step, layout)
            _append(words, position, value, bits)
            position += np.uint64(bits)
    return position


@inlined
def _write_escapes(items: Any, escaping: Any, escaped: Any, at: int) -> int:
    for t in range(len(items)):
        if escaping[t]:
            escaped[at] = items[t]
            at += 1
    return at


@compiled
def find_symbols(
    geometry: Any, channels: Any, model: Any, context: Any, coded: Any, chunk: Any
) -> Any:
    """Find all symbols of a chunk [H, T, D]; return how many escapes and rest bits there are.

    Arguments as of ``decode_chunk``, and ``coded``: coarse symbols uint8 [C, T] and their tables
    uint64 [C, T], fine symbols and tables likewise, escaped items, words of rest bits (zeros).
    """
    layout, first_pair, first_row = geometry
    steps, centers, shifts, bases, multipliers, downs, drops, coarse_tables, fine_tables = channels
    matrices, starts, strides = model
    symbols, which, fine_symbols, fine_which, escaped, words = coded
    _, num_tokens, head_dim = chunk.shape
    sums = np.empty((16, 16 * context.shape[0]), np.int32)
    units = np.zeros((16, 16 * context.shape[0]), np.int8)
    predicted, found, coarse, rebuilt = np.empty((4, num_tokens), np.int32)
    escaping, items = np.empty(num_tokens, np.bool_), np.empty(num_tokens, chunk.dtype)
    num_escaped, position = 0, np.uint64(0)
    for group in range(len(starts)):
        matrix = matrices[starts[group] : starts[group] + 16 * strides[group]]
        predict(matrix, strides[group], context, first_pair, sums)
        for j in range(min(16, len(steps) - 16 * group)):
            c = 16 * group + j
            step, drop = np.int64(steps[c]), drops[c]
            _find_bins(chunk[c // head_dim], c % head_dim, items, (step, layout), found, escaping)
            place(sums[j], (bases[c], multipliers[c], np.int64(downs[c])), predicted)
            choose_coarse(predicted, drop, coarse_tables[c], which[c])
            escapes = _write_coarse(found, predicted, drop, escaping, symbols[c])
            for t in range(num_tokens):
                coarse[t] = found[t] >> drop
            rebuild(predicted, coarse, drop, rebuilt)
            if escapes:
                num_escaped = _write_escapes(items, escaping, escaped, num_escaped)
                for t in range(num_tokens):
                    if escaping[t]:
                        rebuilt[t] = found[t]
            find_units(rebuilt, (centers[c], shifts[c]), units[j])
            if drop > 0:
                choose_fine(predicted, coarse, drop, fine_tables[c], fine_which[c])
                for t in range(num_tokens):
                    fine_symbols[c, t] = np.uint8(found[t] - (coarse[t] << drop))
            position = _write_rest(items, escaping, step, layout, words, position)
        units[min(16, len(steps) - 16 * group) :] = 0  # what the group before left
        write_context(units, context, first_row + 16 * group)
    return num_escaped, position


@compiled
def encode_lanes(lanes: Any, which: Any, cumulative: Any, symbols: Any, used: Any) -> None:
    """Encode the symbols uint8 [C, T] of the channels that are ``used``, last channel first."""
    for back in range(len(symbols)):
        c = len(symbols) - 1 - back
        if used[c]:
            push_channel(lanes, which[c], cumulative, symbols[c])
