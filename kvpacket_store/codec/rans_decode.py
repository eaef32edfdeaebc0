"""What decoding level ``fast`` does with each scalar, compiled: without the GIL, into given arrays.

No index leaves its array, whatever was read from a record: table numbers have four bits, and a lane
takes at most one word a symbol, as many as stand behind the last word. Small integers are computed
with in their own width (a product in place of a shift by a variable): only so do loops over rows
become vector code. Each function is compiled alone: as one they take three times as long. Arguments
are those of ``rans_encode``; ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = [
    "decode_lanes",
    "join_bf16",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
]

_EVERY_BYTE = np.uint64(0x0101010101010101)
# by quarter of the items: what takes its low bits to the upper end of a byte
_LIFTS = np.array([[16, 64], [16, 16], [1, 4], [1, 1]], np.uint8)


@compiled
def read_channels(said: Any, base: int, width: int, layout: Any, channels: Any) -> bool:
    """Unpack what is said of every channel, in ``width`` bits each; False if pad bits are set."""
    tables, tops, flips = channels
    low_bits, magnitude_mask, sign_shift = layout
    at, num_held = 0, 0
    held: Any = 0
    for channel in range(len(tables)):
        while num_held < width:
            held |= np.int64(said[at]) << num_held
            num_held += 8
            at += 1
        value = held & ((1 << width) - 1)
        tables[channel] = np.uint64(value & 15)
        flips[channel] = ((value >> 4) & 1) << sign_shift
        tops[channel] = ((2 * (base + (value >> 5)) + 1) & magnitude_mask) << low_bits
        held >>= width
        num_held -= width
    return bool(held == 0)


@compiled
def read_lanes(heads: Any, stored: Any, lanes: Any) -> bool:
    """Read states, lengths and words; False if a state or the sum of the lengths cannot be.

    A lane's last place is the next one's first: there is one place more than there are lanes.
    """
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
        if state < 65536:
            return False
    places[num_lanes] = np.uint64(end)
    num_words = len(stored) // 2
    for i in range(num_words):
        words[i] = np.uint16(stored[2 * i]) | np.uint16(stored[2 * i + 1]) << np.uint16(8)
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
def _decode_one(lanes: Any, lane: int, table: Any, slots: Any, run: Any) -> None:
    states, places, words = lanes
    table = table << np.uint64(12)
    symbols, at, step, num_tokens = run
    state, place = states[lane], places[lane]
    for _ in range(num_tokens):
        state, place, symbols[at] = _pop(state, place, words, table, slots)
        at += step
    states[lane], places[lane] = state, place


@inlined
def _decode_eight(lanes: Any, lane: int, tables: Any, slots: Any, run: Any) -> None:
    """Neighbours in one head: while one waits for its table, others work."""
    states, places, words = lanes
    symbols, at, step, num_tokens = run
    t0, t1 = tables[0] << np.uint64(12), tables[1] << np.uint64(12)
    t2, t3 = tables[2] << np.uint64(12), tables[3] << np.uint64(12)
    t4, t5 = tables[4] << np.uint64(12), tables[5] << np.uint64(12)
    t6, t7 = tables[6] << np.uint64(12), tables[7] << np.uint64(12)
    x, p = states[lane : lane + 8], places[lane : lane + 8]
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    p0, p1, p2, p3, p4, p5, p6, p7 = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
    for _ in range(num_tokens):
        x0, p0, symbols[at] = _pop(x0, p0, words, t0, slots)
        x1, p1, symbols[at + np.uint64(1)] = _pop(x1, p1, words, t1, slots)
        x2, p2, symbols[at + np.uint64(2)] = _pop(x2, p2, words, t2, slots)
        x3, p3, symbols[at + np.uint64(3)] = _pop(x3, p3, words, t3, slots)
        x4, p4, symbols[at + np.uint64(4)] = _pop(x4, p4, words, t4, slots)
        x5, p5, symbols[at + np.uint64(5)] = _pop(x5, p5, words, t5, slots)
        x6, p6, symbols[at + np.uint64(6)] = _pop(x6, p6, words, t6, slots)
        x7, p7, symbols[at + np.uint64(7)] = _pop(x7, p7, words, t7, slots)
        at += step
    x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7] = x0, x1, x2, x3, x4, x5, x6, x7
    p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7] = p0, p1, p2, p3, p4, p5, p6, p7


@compiled
def decode_lanes(lanes: Any, shape: Any, tables: Any, slots: Any, symbols: Any) -> bool:
    """Decode all symbols, and fill up with zeros; False if a lane ends early or late."""
    num_heads, num_tokens, head_dim = shape
    states, ends, words = lanes
    places = ends.copy()
    step = np.uint64(head_dim)
    together = 8 if head_dim % 8 == 0 else 1
    for head in range(num_heads):
        start = head * num_tokens * head_dim
        for i in range(0, head_dim, together):
            channel = head * head_dim + i
            run, lane = (symbols, np.uint64(start + i), step, num_tokens), channel % 32
            if together == 8:
                some = tables[channel : channel + 8]
                _decode_eight((states, places, words), lane, some, slots, run)
            else:
                _decode_one((states, places, words), lane, tables[channel], slots, run)
    symbols[num_heads * num_tokens * head_dim :] = 0
    for lane in range(len(states)):
        if states[lane] != np.uint64(65536) or places[lane] != ends[lane + 1]:
            return False
    return True


@compiled
def join_bf16(low: Any, symbols: Any, shape: Any, channels: Any, items: Any) -> None:
    """Do what :func:`join_low_bits` and :func:`join_symbols` do, in numbers of 16 bits.

    The items are bf16, a multiple of four of them, and have no zero bits: loops become vector code.
    """
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    share = len(items) // 4
    pairs = low[2 * share :]
    for part in range(4):
        some, fours = items[part * share : (part + 1) * share], low[part % 2 * share :]
        lift_four, lift_two = _LIFTS[part, 0], _LIFTS[part, 1]
        for i in range(len(some)):
            four = ((fours[i] * lift_four) & np.uint8(0xF0)) >> np.uint8(4)
            some[i] = four | ((pairs[i] * lift_two) & np.uint8(0xC0)) >> np.uint8(2)
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                magnitude = top[i] - ((line[i] & np.uint8(31)) << np.uint8(6))
                sign = (line[i] << np.uint8(10)) ^ flip[i]
                row[i] |= (magnitude & np.uint16(0x7FC0)) | (sign & np.uint16(0x8000))


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
) -> None:
    """Put symbols above the low bits, which go up by ``zero_bits``."""
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    low_bits, magnitude_mask, sign_shift = layout
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                magnitude = (np.int64(top[i]) - (np.int64(line[i] & 31) << low_bits)) & (
                    magnitude_mask << low_bits
                )
                sign = (np.int64(line[i]) >> 5 << sign_shift) ^ np.int64(flip[i])
                row[i] = (np.int64(row[i]) << zero_bits) | magnitude | sign


@compiled
def place_escapes(stored: Any, symbols: Any, layout: Any, items: Any) -> bool:
    """Give escapes their magnitudes, two bytes each, in order; False if they cannot be these.

    ``symbols`` are a multiple of eight; those of no item are not looked at.
    """
    num_items = len(items)
    low_bits, magnitude_mask, _ = layout
    at, keep = 0, ~(magnitude_mask << low_bits)
    eights = symbols.view(np.uint64)
    for start in range(0, len(eights), 16):
        some = eights[start : start + 16]
        found = np.uint64(0)
        for i in range(len(some)):
            found |= (some[i] & (np.uint64(31) * _EVERY_BYTE)) + _EVERY_BYTE
        if found & (np.uint64(32) * _EVERY_BYTE):
            for i in range(8 * start, min(8 * start + 128, num_items)):
                if symbols[i] & 31 == 31:
                    if at >= len(stored):
                        return False
                    magnitude = np.int64(stored[at]) | np.int64(stored[at + 1]) << 8
                    if magnitude > magnitude_mask:
                        return False
                    items[i] = (np.int64(items[i]) & keep) | magnitude << low_bits
                    at += 2
    return at == len(stored)
