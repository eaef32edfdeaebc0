"""What decoding level ``fast`` does with each scalar, compiled: without the GIL, into given arrays.

No index leaves its array, whatever was read from a record: table numbers have four bits, and a lane
takes at most one word a symbol, as many as stand behind the last word. Arguments are those of
``rans_encode``; ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = [
    "decode_lanes",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
]


@compiled
def read_channels(said: Any, base: int, width: int, layout: Any, channels: Any) -> bool:
    """Unpack what is said of every channel, in ``width`` bits each; False if pad bits are set."""
    tables, tops, flips = channels
    _, magnitude_mask = layout
    at, num_held = 0, 0
    held: Any = 0
    for channel in range(len(tables)):
        while num_held < width:
            held |= np.int64(said[at]) << num_held
            num_held += 8
            at += 1
        value = held & ((1 << width) - 1)
        tables[channel], flips[channel] = np.uint64(value & 15), (value >> 4) & 1
        tops[channel] = (2 * (base + (value >> 5)) + 1) & magnitude_mask
        held >>= width
        num_held -= width
    return bool(held == 0)


@compiled
def read_lanes(heads: Any, stored: Any, lanes: Any, ends: Any) -> bool:
    """Read states, lengths and words; False if a state or the sum of the lengths cannot be."""
    states, places, words = lanes
    num_lanes = len(states)
    end: Any = 0
    for lane in range(num_lanes):
        at = 4 * lane
        state = np.int64(heads[at]) | np.int64(heads[at + 1]) << 8
        state |= np.int64(heads[at + 2]) << 16 | np.int64(heads[at + 3]) << 24
        at = 4 * num_lanes + 2 * lane
        states[lane], places[lane] = np.uint64(state), np.uint64(end)
        end += np.int64(heads[at]) | np.int64(heads[at + 1]) << 8
        ends[lane] = np.uint64(end)
        if state < 65536:
            return False
    num_words = len(stored) // 2
    for i in range(num_words):
        words[i] = np.int64(stored[2 * i]) | np.int64(stored[2 * i + 1]) << 8
    words[num_words:] = 0
    return bool(end == num_words)


@inlined
def _pop(state: Any, place: int, words: Any, table: int, slots: Any) -> Any:
    """Decode one symbol: the next state, the next word's place, the symbol."""
    entry = np.uint64(slots[table | (state & np.uint64(4095))])
    state = (entry >> np.uint64(20)) * (state >> np.uint64(12)) + (
        (entry >> np.uint64(8)) & np.uint64(4095)
    )
    more = state < np.uint64(65536)
    filled = (state << np.uint64(16)) | np.uint64(words[place])
    return (filled if more else state), place + np.uint64(more), np.uint8(entry)


@inlined
def _decode_one(lanes: Any, lane: int, tables: Any, slots: Any, run: Any) -> None:
    states, places, words = lanes
    symbols, step, num_tokens = run
    at, step = np.uint64(0), np.uint64(step)
    table, state, place = tables[0] << np.uint64(12), states[lane], places[lane]
    for _ in range(num_tokens):
        state, place, symbols[at] = _pop(state, place, words, table, slots)
        at += step
    states[lane], places[lane] = state, place


@inlined
def _decode_four(lanes: Any, lane: int, tables: Any, slots: Any, run: Any) -> None:
    """Neighbours in one head: their states stay in registers, one waits while others work."""
    states, places, words = lanes
    symbols, step, num_tokens = run
    at, step = np.uint64(0), np.uint64(step)
    t0, t1 = tables[0] << np.uint64(12), tables[1] << np.uint64(12)
    t2, t3 = tables[2] << np.uint64(12), tables[3] << np.uint64(12)
    x0, x1, x2, x3 = states[lane], states[lane + 1], states[lane + 2], states[lane + 3]
    p0, p1, p2, p3 = places[lane], places[lane + 1], places[lane + 2], places[lane + 3]
    for _ in range(num_tokens):
        x0, p0, symbols[at] = _pop(x0, p0, words, t0, slots)
        x1, p1, symbols[at + np.uint64(1)] = _pop(x1, p1, words, t1, slots)
        x2, p2, symbols[at + np.uint64(2)] = _pop(x2, p2, words, t2, slots)
        x3, p3, symbols[at + np.uint64(3)] = _pop(x3, p3, words, t3, slots)
        at += step
    states[lane], states[lane + 1], states[lane + 2], states[lane + 3] = x0, x1, x2, x3
    places[lane], places[lane + 1], places[lane + 2], places[lane + 3] = p0, p1, p2, p3


@compiled
def decode_lanes(lanes: Any, shape: Any, tables: Any, slots: Any, symbols: Any) -> None:
    """Decode all symbols; states and places are left where the lanes end."""
    num_tokens, head_dim = shape[1], shape[2]
    num_channels = len(tables)
    together = 4 if head_dim % 4 == 0 else 1
    for first in range(0, min(32, num_channels), together):
        for channel in range(first, num_channels, 32):
            at = channel // head_dim * num_tokens * head_dim + channel % head_dim
            run = (symbols[at:], head_dim, num_tokens)
            if together == 4:
                _decode_four(lanes, first, tables[channel : channel + 4], slots, run)
            else:
                _decode_one(lanes, first, tables[channel : channel + 1], slots, run)


@compiled
def join_low_bits(low: Any, width: int, items: Any) -> None:
    """Write the ``width`` low bits of all items: whole bytes first, then 4, 2 and 1 bits."""
    num_items, done = len(items), 0
    items[:] = 0
    for _ in range(width // 8):
        for i in range(num_items):
            items[i] |= np.int64(low[i]) << done
        low = low[num_items:]
        done += 8
    for bits in (4, 2, 1):
        if width & bits:
            share, mask = (num_items * bits + 7) // 8, (1 << bits) - 1
            for part in range(8 // bits):
                some, shift = items[part * share : (part + 1) * share], part * bits
                for i in range(len(some)):
                    some[i] |= ((np.int64(low[i]) >> shift) & mask) << done
            low = low[share:]
            done += bits


@compiled
def join_symbols(
    symbols: Any, shape: Any, layout: Any, channels: Any, zero_bits: int, items: Any
) -> int:
    """Put symbols above the low bits, which go up by ``zero_bits``; return how many escape."""
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
                distance = np.int64(line[i] & np.uint8(31))
                magnitude = (np.int64(top[i]) - distance) & magnitude_mask
                sign = np.int64((line[i] >> np.uint8(5)) ^ flip[i])
                row[i] = (
                    (np.int64(row[i]) << zero_bits) | magnitude << low_bits | sign << sign_shift
                )
                escapes += distance == 31
    return escapes


@inlined
def _any_escape(symbols: Any) -> bool:
    found = 0
    for i in range(len(symbols)):
        found += (symbols[i] & np.uint8(31)) == 31
    return found > 0


@compiled
def place_escapes(stored: Any, symbols: Any, layout: Any, items: Any) -> bool:
    """Give escapes their magnitudes, two bytes each, in order; False if one cannot be."""
    low_bits, magnitude_mask = layout
    at, keep = 0, ~(magnitude_mask << low_bits)
    for start in range(0, len(items), 128):
        if _any_escape(symbols[start : start + 128]):
            for i in range(start, min(start + 128, len(items))):
                if symbols[i] & 31 == 31:
                    magnitude = np.int64(stored[at]) | np.int64(stored[at + 1]) << 8
                    if magnitude > magnitude_mask:
                        return False
                    items[i] = (np.int64(items[i]) & keep) | magnitude << low_bits
                    at += 2
    return True
