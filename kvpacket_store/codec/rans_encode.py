"""What encoding level ``fast`` does with each scalar, compiled: without the GIL, into given arrays.

Items and symbols are flat, in the order ``[H, T, D]``; ``shape`` is ``(H, T, D)``; ``channels`` are
``(tables, tops, flips)`` of the H * D channels; ``lanes`` are ``(states, places, words)``;
``layout`` is ``(low_bits, magnitude_mask, sign_shift)`` of the KV dtype. ``rans_reference`` is the
oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = [
    "encode_lanes",
    "split_bf16",
    "split_low_bits",
    "split_symbols",
    "take_escapes",
    "write_lanes",
]

_EVERY_BYTE = np.uint64(0x0101010101010101)


@compiled
def split_symbols(items: Any, shape: Any, layout: Any, channels: Any, symbols: Any) -> None:
    """Write the symbol of every item, and fill up with zeros."""
    symbols[len(items) :] = 0
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    low_bits, magnitude_mask, sign_shift = layout
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                magnitude = (np.int64(row[i]) >> low_bits) & magnitude_mask
                distance = (np.int64(top[i]) >> low_bits) - magnitude
                sign = (np.int64(row[i]) ^ np.int64(flip[i])) >> sign_shift
                line[i] = sign << 5 | (31 if (distance < 0) | (distance > 30) else distance)


@compiled
def split_bf16(items: Any, shape: Any, channels: Any, symbols: Any, low: Any) -> None:
    """Do what :func:`split_symbols` and :func:`split_low_bits` do, in numbers of 16 bits.

    The items are bf16, a multiple of four of them, and have no zero bits: loops become vector code.
    """
    symbols[len(items) :] = 0
    num_heads, num_tokens, head_dim = shape
    _, tops, flips = channels
    for head in range(num_heads):
        top, flip = tops[head * head_dim :], flips[head * head_dim :]
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            for i in range(head_dim):
                below = np.uint16(top[i] - (row[i] & np.uint16(0x7FC0)))
                distance = min(below, np.uint16(31 << 6)) >> np.uint16(6)
                line[i] = distance | ((row[i] ^ flip[i]) >> np.uint16(15)) << np.uint8(5)
    share = len(items) // 4
    a, b = items[:share], items[share : 2 * share]
    c, d = items[2 * share : 3 * share], items[3 * share :]
    four, five, two = low[:share], low[share : 2 * share], low[2 * share : 3 * share]
    for i in range(share):
        four[i] = (a[i] & np.uint8(15)) | (c[i] & np.uint8(15)) << np.uint8(4)
        five[i] = (b[i] & np.uint8(15)) | (d[i] & np.uint8(15)) << np.uint8(4)
        first = (a[i] & np.uint8(48)) >> np.uint8(4) | (b[i] & np.uint8(48)) >> np.uint8(2)
        two[i] = first | (c[i] & np.uint8(48)) | (d[i] & np.uint8(48)) << np.uint8(2)


@inlined
def _push(state: Any, place: Any, words: Any, entry: Any, reciprocal: Any) -> Any:
    """Encode one symbol, last ones first: the next state, where its last word stands."""
    words[place - np.uint64(1)] = state & np.uint64(65535)
    more = state >= entry >> np.uint64(32)
    state = state >> np.uint64(16) if more else state
    quotient = (state * reciprocal) >> np.uint64(44)
    state += quotient * ((entry >> np.uint64(16)) & np.uint64(65535)) + (entry & np.uint64(65535))
    return state, place - np.uint64(more)


@inlined
def _encode_one(lanes: Any, lane: int, table: Any, ranges: Any, run: Any) -> None:
    states, places, words = lanes
    entries, reciprocals = ranges
    symbols, at, step, num_tokens = run
    state, place = states[lane], places[lane]
    for _ in range(num_tokens):
        at -= step
        code = table << np.uint64(6) | symbols[at]
        state, place = _push(state, place, words, entries[code], reciprocals[code])
    states[lane], places[lane] = state, place


@inlined
def _encode_four(lanes: Any, lane: int, tables: Any, ranges: Any, run: Any) -> None:
    """Neighbours in one head: their states stay in registers."""
    states, places, words = lanes
    entries, reciprocals = ranges
    symbols, at, step, num_tokens = run
    t0, t1 = tables[0] << np.uint64(6), tables[1] << np.uint64(6)
    t2, t3 = tables[2] << np.uint64(6), tables[3] << np.uint64(6)
    x, p = states[lane : lane + 4], places[lane : lane + 4]
    x0, x1, x2, x3, p0, p1, p2, p3 = x[0], x[1], x[2], x[3], p[0], p[1], p[2], p[3]
    for _ in range(num_tokens):
        at -= step
        c0, c1 = t0 | symbols[at], t1 | symbols[at + np.uint64(1)]
        c2, c3 = t2 | symbols[at + np.uint64(2)], t3 | symbols[at + np.uint64(3)]
        x0, p0 = _push(x0, p0, words, entries[c0], reciprocals[c0])
        x1, p1 = _push(x1, p1, words, entries[c1], reciprocals[c1])
        x2, p2 = _push(x2, p2, words, entries[c2], reciprocals[c2])
        x3, p3 = _push(x3, p3, words, entries[c3], reciprocals[c3])
    x[0], x[1], x[2], x[3], p[0], p[1], p[2], p[3] = x0, x1, x2, x3, p0, p1, p2, p3


@compiled
def encode_lanes(lanes: Any, shape: Any, tables: Any, ranges: Any, symbols: Any) -> None:
    """Code all symbols, last ones first, so that decoding goes forward."""
    num_heads, num_tokens, head_dim = shape
    states, places, words = lanes
    num_lanes = len(states)
    capacity = len(words) // num_lanes
    for lane in range(num_lanes):
        states[lane], places[lane] = np.uint64(65536), np.uint64((lane + 1) * capacity)
    step = np.uint64(head_dim)
    together = 4 if head_dim % 4 == 0 else 1
    for head in range(num_heads - 1, -1, -1):
        end = (head + 1) * num_tokens * head_dim
        for i in range(head_dim - together, -1, -together):
            channel = head * head_dim + i
            run = (symbols, np.uint64(end + i), step, num_tokens)
            if together == 4:
                _encode_four(lanes, channel % 32, tables[channel : channel + 4], ranges, run)
            else:
                _encode_one(lanes, channel % 32, tables[channel], ranges, run)


@compiled
def write_lanes(lanes: Any, body: Any) -> int:
    """Write states, lengths and words, which end where their rows do; return the bytes.

    -1 where a length has over 16 bits, or the body is too short.
    """
    states, places, words = lanes
    num_lanes = len(states)
    end: Any = 6 * num_lanes
    capacity = len(words) // num_lanes
    for lane in range(num_lanes):
        state, place = np.int64(states[lane]), np.int64(places[lane])
        length = (lane + 1) * capacity - place
        if length > 65535 or end + 2 * length > len(body):
            return -1
        for byte in range(4):
            body[4 * lane + byte] = (state >> 8 * byte) & 255
        at = 4 * num_lanes + 2 * lane
        body[at], body[at + 1] = length & 255, length >> 8
        run, written = words[place:], body[end : end + 2 * length]
        for i in range(length):
            written[2 * i] = run[i] & np.uint16(255)
            written[2 * i + 1] = run[i] >> np.uint16(8)
        end += 2 * length
    return int(end)


@compiled
def take_escapes(items: Any, symbols: Any, layout: Any, escapes: Any) -> int:
    """Write the magnitudes of escapes, in order, as far as there is room; return how many.

    ``symbols`` are a multiple of eight; those of no item are not looked at.
    """
    num_escapes = 0
    low_bits, magnitude_mask, _ = layout
    eights = symbols.view(np.uint64)
    for start in range(0, len(eights), 16):
        some = eights[start : start + 16]
        found = np.uint64(0)
        for i in range(len(some)):
            found |= (some[i] & (np.uint64(31) * _EVERY_BYTE)) + _EVERY_BYTE
        if found & (np.uint64(32) * _EVERY_BYTE):
            for i in range(8 * start, min(8 * start + 128, len(items))):
                if symbols[i] & 31 == 31 and num_escapes < len(escapes):
                    escapes[num_escapes] = (np.int64(items[i]) >> low_bits) & magnitude_mask
                    num_escapes += 1
    return num_escapes


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
