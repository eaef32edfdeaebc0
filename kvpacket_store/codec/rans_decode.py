"""A rANS body → its items, compiled: one call a chunk, without the GIL, into a given array.

No index leaves its array, whatever was read from a record: table numbers have four bits, and a lane
takes at most one word a symbol, as many as stand behind the last word. Small integers are computed
with in their own width (a product in place of a shift by a variable): only so do loops over rows
become vector code. ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = ["decode_chunk"]

_EVERY_BYTE = np.uint64(0x0101010101010101)


@inlined
def _read_channels(said: Any, base: int, width: int, layout: Any, channels: Any) -> bool:
    """Unpack what is said of every channel, in ``width`` bits each; False if pad bits are set.

    Tops and flips are left where they stand in an item.
    """
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
        tables[channel] = np.uint64((value & 15) << 12)
        flips[channel] = ((value >> 4) & 1) << sign_shift
        tops[channel] = ((2 * (base + (value >> 5)) + 1) & magnitude_mask) << low_bits
        held >>= width
        num_held -= width
    return bool(held == 0)


@inlined
def _read_lanes(heads: Any, stored: Any, lanes: Any, ends: Any) -> bool:
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
    t0, t1, t2, t3 = tables[0], tables[1], tables[2], tables[3]
    t4, t5, t6, t7 = tables[4], tables[5], tables[6], tables[7]
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


@inlined
def _decode_lanes(lanes: Any, shape: Any, tables: Any, slots: Any, symbols: Any) -> None:
    """Decode all symbols; states and places are left where the lanes end."""
    num_heads, num_tokens, head_dim = shape
    step = np.uint64(head_dim)
    together = 8 if head_dim % 8 == 0 else 1
    for head in range(num_heads):
        start = head * num_tokens * head_dim
        for i in range(0, head_dim, together):
            channel = head * head_dim + i
            run = (symbols, np.uint64(start + i), step, num_tokens)
            if together == 8:
                _decode_eight(lanes, channel % 32, tables[channel : channel + 8], slots, run)
            else:
                _decode_one(lanes, channel % 32, tables[channel], slots, run)


@inlined
def _join_six(low: Any, items: Any) -> None:
    """Write six low bits of a multiple of four items: bf16, as a rule."""
    share = len(items) // 4
    pairs = low[2 * share :]
    for part in range(4):
        some, fours = items[part * share : (part + 1) * share], low[part % 2 * share :]
        lift_four, lift_two = np.uint8(16 >> 4 * (part // 2)), np.uint8(64 >> 2 * part)
        for i in range(len(some)):
            four = ((fours[i] * lift_four) & np.uint8(0xF0)) >> np.uint8(4)
            some[i] = four | ((pairs[i] * lift_two) & np.uint8(0xC0)) >> np.uint8(2)


@inlined
def _join_low_bits(low: Any, width: int, items: Any) -> None:
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


@inlined
def _join_symbols(symbols: Any, shape: Any, channels: Any, units: Any, items: Any) -> None:
    """Put symbols above the low bits, which go up by the zero bits."""
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    magnitude_unit, magnitude_mask, sign_unit = units[0], units[1], units[2]
    sign_mask, low_unit = units[3], units[4]
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                magnitude = top[i] - (line[i] & np.uint8(31)) * magnitude_unit
                sign = (line[i] * sign_unit) ^ flip[i]
                row[i] = (row[i] * low_unit) | (magnitude & magnitude_mask) | (sign & sign_mask)


@inlined
def _place_escapes(stored: Any, symbols: Any, num_items: int, layout: Any, items: Any) -> int:
    """Give escapes their magnitudes, in order; return the bytes used, -1 if one cannot be."""
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
                        return -1
                    magnitude = np.int64(stored[at]) | np.int64(stored[at + 1]) << 8
                    if magnitude > magnitude_mask:
                        return -1
                    items[i] = (np.int64(items[i]) & keep) | magnitude << low_bits
                    at += 2
    return at


@inlined
def _units(layout: Any, zero_bits: int, units: Any) -> None:
    low_bits, magnitude_mask, sign_shift = layout
    units[0], units[1] = 1 << low_bits, magnitude_mask << low_bits
    units[2], units[3], units[4] = 1 << (sign_shift - 5), 1 << sign_shift, 1 << zero_bits


@compiled
def decode_chunk(
    body: Any, sections: Any, sizes: Any, slots: Any, kept: Any, items: Any
) -> int:
    """Decode a body whose sections lie inside it into flat ``items``.

    Parameters
    ----------
    body : uint8 [bytes]
        A rANS body.
    sections : tuple of int
        Base, bits a channel, zero bits; where lane heads, words, escapes and low bits begin.
    sizes : tuple of int
        H, T, D; low bits, magnitude mask, sign shift of the KV dtype.
    slots : uint32 [16 * 4096]
        Of :func:`.tables.coder`.
    kept : tuple
        Symbols, uint8, a multiple of 8 not below the number of items; words, uint16, with room for
        a word a symbol of one lane behind those of the body. Written to.
    items : uint8, uint16 or uint32 [H * T * D]
        Written to.

    Returns
    -------
    int
        0, or what does not hold: 1 a channel, 2 lane heads, 3 a lane's end, 4 escapes.
    """
    base, width, zero_bits, heads_at, words_at, escapes_at, low_at = sections
    shape, layout = (sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5])
    symbols, words = kept
    num_channels, num_lanes = shape[0] * shape[2], min(32, shape[0] * shape[2])
    tables = np.empty(num_channels, np.uint64)
    channels = (tables, np.empty(num_channels, items.dtype), np.empty(num_channels, items.dtype))
    states, places = np.empty(num_lanes, np.uint64), np.empty(num_lanes, np.uint64)
    ends, units = np.empty(num_lanes, np.uint64), np.empty(5, items.dtype)
    if not _read_channels(body[8:heads_at], base, width, layout, channels):
        return 1
    lanes = (states, places, words)
    if not _read_lanes(body[heads_at:words_at], body[words_at:escapes_at], lanes, ends):
        return 2
    _decode_lanes(lanes, shape, tables, slots, symbols)
    for lane in range(num_lanes):
        if states[lane] != np.uint64(65536) or places[lane] != ends[lane]:
            return 3
    symbols[len(items) :] = 0
    low_bits = layout[0] - zero_bits
    if low_bits == 6 and len(items) % 4 == 0:
        _join_six(body[low_at:], items)
    else:
        _join_low_bits(body[low_at:], low_bits, items)
    _units(layout, zero_bits, units)
    _join_symbols(symbols, shape, channels, units, items)
    used = _place_escapes(body[escapes_at:low_at], symbols, len(items), layout, items)
    return 0 if used == low_at - escapes_at else 4
