"""What encoding level ``fast`` does with each scalar, compiled: without the GIL, into given arrays.

Items and symbols are flat, in the order ``[H, T, D]``; ``shape`` is ``(H, T, D)``; ``channels`` are
``(tables, tops, flips)`` of the H * D channels; ``lanes`` are ``(states, places, words)``;
``layout`` is ``(low_bits, magnitude_mask)`` of the KV dtype. ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined, reordering

__all__ = [
    "center",
    "choose",
    "count",
    "encode_lanes",
    "find_highest",
    "split_low_bits",
    "split_symbols",
]


@compiled
def find_highest(items: Any, shape: Any, layout: Any, every: int, highest: Any) -> None:
    """Find a magnitude for each channel that all items but outliers lie below.

    Every ``every``-th token is looked at. Two octaves above the lowest of four peaks, each of every
    fourth of these tokens: a few outliers hide nobody.
    """
    num_heads, num_tokens, head_dim = shape
    low_bits, magnitude_mask = layout
    peak = np.empty(head_dim, np.uint16)
    highest[:] = np.uint16(65531)
    for head in range(num_heads):
        top = highest[head * head_dim :]
        for first in range(0, min(4 * every, num_tokens), every):
            for i in range(head_dim):
                peak[i] = np.uint16(0)
            for token in range(first, num_tokens, 4 * every):
                row = items[(head * num_tokens + token) * head_dim :]
                for i in range(head_dim):
                    peak[i] = max(peak[i], np.uint16((row[i] >> low_bits) & magnitude_mask))
            for i in range(head_dim):
                top[i] = min(top[i], peak[i])
    for channel in range(len(highest)):
        highest[channel] += np.uint16(4)


@compiled
def count(items: Any, shape: Any, layout: Any, every: int, highest: Any, counts: Any) -> None:
    """Count each channel's items by sign and distance (0 to 63) below its highest magnitude."""
    num_heads, num_tokens, head_dim = shape
    low_bits, magnitude_mask = layout
    for head in range(num_heads):
        top, count = highest[head * head_dim :], counts[head * head_dim :]
        for token in range(0, num_tokens, every):
            row = items[(head * num_tokens + token) * head_dim :]
            for i in range(head_dim):
                symbol = np.int64(row[i]) >> low_bits
                distance = np.int64(top[i]) - (symbol & magnitude_mask)
                distance = min(max(distance, 0), 63)
                count[i, 1 if symbol > magnitude_mask else 0, distance] += 1


@compiled
def center(
    counts: Any, highest: Any, num_counted: int, usual: Any, flips: Any, windows: Any
) -> None:
    """Find where each channel mostly lies, and move its counts into a window around that.

    ``usual`` is the least exponent that at most 3 % of the items lie above; ``flips`` says that
    most are negative. A window has 40 distances of each sign, from 3 above the usual top on.
    """
    for channel in range(len(usual)):
        above, distance, negative = 0, 0, 0
        for i in range(64):
            negative += counts[channel, 1, i]
        while distance < 63:
            above += counts[channel, 0, distance] + counts[channel, 1, distance]
            if 100 * above > 3 * num_counted:
                break
            distance += 1
        top: Any = np.int64(highest[channel])
        usual[channel] = (top - distance if top > distance else 0) >> 1
        flip = 1 if 2 * negative > num_counted else 0
        flips[channel] = flip
        for i in range(64):
            below = min(max(2 * usual[channel] + 4 - top + i, 0), 39)
            windows[channel, below] += counts[channel, flip, i]
            windows[channel, 40 + below] += counts[channel, 1 - flip, i]


@reordering
def choose(windows: Any, costs: Any, chosen: Any) -> None:
    """Write the cheapest of the 48 prices for each channel: 16 * (octaves up + 1) + table.

    The floats are integers below 2**24: their sums are exact in any order.
    """
    for channel in range(len(windows)):
        window, best = windows[channel], np.float32(1 << 24)
        for option in range(48):
            total, prices = np.float32(0), costs[option]
            for i in range(80):
                total += window[i] * prices[i]
            if total < best:
                best, chosen[channel] = total, option


@compiled
def split_symbols(items: Any, shape: Any, layout: Any, channels: Any, symbols: Any) -> int:
    """Write the symbol of every item; return how many are escapes."""
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    low_bits, magnitude_mask = layout
    sign_shift, escapes = 8 * items.itemsize - 1, 0
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                magnitude = (np.int64(row[i]) >> low_bits) & magnitude_mask
                distance = np.int64(top[i]) - magnitude
                escape = (distance < 0) | (distance > 30)
                sign = (np.int64(row[i]) >> sign_shift) ^ np.int64(flip[i])
                line[i] = sign << 5 | (31 if escape else distance)
                escapes += escape
    return escapes


@inlined
def _push(state: Any, place: Any, words: Any, entry: Any) -> Any:
    """Encode one symbol, last ones first: the next state, where its last word stands."""
    first = entry & np.uint64(4095)
    frequency = (entry >> np.uint64(12)) & np.uint64(4095)
    words[place - np.uint64(1)] = state & np.uint64(65535)
    more = state >= frequency << np.uint64(20)
    state = state >> np.uint64(16) if more else state
    # times a reciprocal that is rounded down: the quotient, or one less
    quotient = (state * (entry >> np.uint64(24))) >> np.uint64(32)
    rest = state - quotient * frequency
    less = np.uint64(rest >= frequency)
    state = ((quotient + less) << np.uint64(12)) + rest - less * frequency + first
    return state, place - np.uint64(more)


@inlined
def _encode_one(lanes: Any, lane: int, tables: Any, ranges: Any, run: Any) -> None:
    states, places, words = lanes
    symbols, step, num_tokens = run
    at, step = np.uint64(step * num_tokens), np.uint64(step)
    table, state, place = tables[0] << np.uint64(6), states[lane], places[lane]
    for _ in range(num_tokens):
        at -= step
        state, place = _push(state, place, words, ranges[table | symbols[at]])
    states[lane], places[lane] = state, place


@inlined
def _encode_four(lanes: Any, lane: int, tables: Any, ranges: Any, run: Any) -> None:
    states, places, words = lanes
    symbols, step, num_tokens = run
    at, step = np.uint64(step * num_tokens), np.uint64(step)
    t0, t1, t2, t3 = (
        tables[0] << np.uint64(6),
        tables[1] << np.uint64(6),
        tables[2] << np.uint64(6),
        tables[3] << np.uint64(6),
    )
    x0, x1, x2, x3 = states[lane], states[lane + 1], states[lane + 2], states[lane + 3]
    p0, p1, p2, p3 = places[lane], places[lane + 1], places[lane + 2], places[lane + 3]
    for _ in range(num_tokens):
        at -= step
        x0, p0 = _push(x0, p0, words, ranges[t0 | symbols[at]])
        x1, p1 = _push(x1, p1, words, ranges[t1 | symbols[at + np.uint64(1)]])
        x2, p2 = _push(x2, p2, words, ranges[t2 | symbols[at + np.uint64(2)]])
        x3, p3 = _push(x3, p3, words, ranges[t3 | symbols[at + np.uint64(3)]])
    states[lane], states[lane + 1], states[lane + 2], states[lane + 3] = x0, x1, x2, x3
    places[lane], places[lane + 1], places[lane + 2], places[lane + 3] = p0, p1, p2, p3


@compiled
def encode_lanes(symbols: Any, shape: Any, tables: Any, ranges: Any, lanes: Any) -> None:
    """Code all symbols, last ones first, so that decoding goes forward."""
    num_tokens, head_dim = shape[1], shape[2]
    num_channels = len(tables)
    together = 4 if head_dim % 4 == 0 else 1
    for first in range(0, min(32, num_channels), together):
        last = first + (num_channels - 1 - first) // 32 * 32
        for channel in range(last, -1, -32):
            at = channel // head_dim * num_tokens * head_dim + channel % head_dim
            run = (symbols[at:], head_dim, num_tokens)
            if together == 4:
                _encode_four(lanes, first, tables[channel : channel + 4], ranges, run)
            else:
                _encode_one(lanes, first, tables[channel : channel + 1], ranges, run)


@compiled
def split_low_bits(items: Any, zero_bits: int, width: int, low: Any) -> None:
    """Write ``width`` bits of every item above its zero bits."""
    num_items, done = len(items), zero_bits
    for _ in range(width // 8):
        for i in range(num_items):
            low[i] = np.uint8(np.int64(items[i]) >> done)
        low = low[num_items:]
        done += 8
    for bits in (4, 2, 1):
        if width & bits:
            share, mask = (num_items * bits + 7) // 8, (1 << bits) - 1
            low[:share] = 0
            for part in range(8 // bits):
                some, shift = items[part * share : (part + 1) * share], part * bits
                for i in range(len(some)):
                    low[i] |= np.uint8(((np.int64(some[i]) >> done) & mask) << shift)
            low = low[share:]
            done += bits
