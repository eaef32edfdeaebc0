"""Items → their rANS body, compiled: one call a chunk, without the GIL, into a given array.

Items and symbols are flat, in the order ``[H, T, D]``; ``shape`` is ``(H, T, D)``; ``channels`` are
``(exponents, tables, flips)`` of the H * D channels; ``layout`` is ``(low_bits, magnitude_mask,
sign_shift)`` of the KV dtype. ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = ["encode_chunk"]

_EVERY_BYTE = np.uint64(0x0101010101010101)


@inlined
def _find_highest(items: Any, shape: Any, layout: Any, every: int, highest: Any) -> None:
    """Find a magnitude for each channel that all items but outliers lie below.

    Every ``every``-th token is looked at. Two octaves above the lowest of four peaks, each of every
    fourth of these tokens: a few outliers hide nobody.
    """
    num_heads, num_tokens, head_dim = shape
    low_bits, magnitude_mask, _ = layout
    peak, lowest = np.empty(head_dim, items.dtype), np.empty(head_dim, items.dtype)
    masks = np.empty(1, items.dtype)
    masks[0] = magnitude_mask << low_bits
    mask = masks[0]
    for head in range(num_heads):
        lowest[:] = mask
        for first in range(0, min(4 * every, num_tokens), every):
            peak[:] = 0
            for token in range(first, num_tokens, 4 * every):
                at = (head * num_tokens + token) * head_dim
                row = items[at : at + head_dim]
                for i in range(head_dim):
                    peak[i] = max(peak[i], row[i] & mask)
            for i in range(head_dim):
                lowest[i] = min(lowest[i], peak[i])
        for i in range(head_dim):
            highest[head * head_dim + i] = (np.int64(lowest[i]) >> low_bits) + 4


@inlined
def _count(items: Any, run: Any, layout: Any, highest: Any, counts: Any) -> None:
    """Count the items of a head's channels by sign and distance (0 to 63) below the highest."""
    start, stop, step = run
    low_bits, magnitude_mask, _ = layout
    head_dim = len(highest)
    counts[:] = 0
    for at in range(start, stop, step):
        row = items[at : at + head_dim]
        for i in range(head_dim):
            symbol = np.int64(row[i]) >> low_bits
            distance = np.int64(highest[i]) - (symbol & magnitude_mask)
            distance = min(max(distance, 0), 63)
            counts[np.uint64(128 * i + distance + (64 if symbol > magnitude_mask else 0))] += 1


@inlined
def _center(counts: Any, highest: int, num_counted: int) -> Any:
    """Find where a channel mostly lies: an exponent, and whether most items are negative.

    At most 3 % of the items lie above the exponent.
    """
    above, distance, negative = 0, 0, 0
    for i in range(64, 128):
        negative += counts[i]
    while distance < 63:
        above += np.int64(counts[distance]) + np.int64(counts[64 + distance])
        if 100 * above > 3 * num_counted:
            break
        distance += 1
    return (max(highest - distance, 0)) >> 1, 1 if 2 * negative > num_counted else 0


@inlined
def _choose(counts: Any, start: int, flip: int, costs: Any, totals: Any) -> int:
    """Return the cheapest of the 48 prices: 16 * (octaves up + 1) + table.

    The floats are integers below 2**24: their sums are exact in any order.
    """
    totals[:] = 0
    for negative in range(2):
        for i in range(64):
            many = np.float32(counts[64 * negative + i])
            if many:
                at = 48 * (min(max(start + i, 0), 39) + 40 * (negative ^ flip))
                prices = costs[at : at + 48]
                for option in range(48):
                    totals[option] += many * prices[option]
    best = 0
    for option in range(48):
        if totals[option] < totals[best]:
            best = option
    return best


@inlined
def _describe(items: Any, shape: Any, layout: Any, costs: Any, channels: Any) -> None:
    """Choose each channel's exponent, table and flip; any choice decodes, these are cheap."""
    num_heads, num_tokens, head_dim = shape
    exponents, tables, flips = channels
    every = max(1, num_tokens // 128)  # as many tell a channel's shape; all would save 0.01 bit
    highest, totals = np.empty(num_heads * head_dim, np.int64), np.empty(48, np.float32)
    counts = np.empty(128 * head_dim, np.uint8)  # at most 255 tokens are counted
    _find_highest(items, shape, layout, every, highest)
    for head in range(num_heads):
        start = head * num_tokens * head_dim
        run = (start, start + num_tokens * head_dim, every * head_dim)
        _count(items, run, layout, highest[head * head_dim : (head + 1) * head_dim], counts)
        for i in range(head_dim):
            channel, counted = head * head_dim + i, counts[128 * i : 128 * i + 128]
            top = highest[channel]
            usual, flip = _center(counted, top, -(-num_tokens // every))
            chosen = _choose(counted, 2 * usual + 4 - top, flip, costs, totals)
            exponents[channel] = min(max(usual + (chosen >> 4) - 1, 0), layout[1] >> 1)
            tables[channel], flips[channel] = np.uint64(chosen & 15), flip


@inlined
def _split_symbols(items: Any, shape: Any, layout: Any, channels: Any, symbols: Any) -> None:
    num_heads, num_tokens, head_dim = shape
    exponents, _, flips = channels
    low_bits, magnitude_mask, sign_shift = layout
    top, flip = np.empty(head_dim, items.dtype), np.empty(head_dim, items.dtype)
    for head in range(num_heads):
        for i in range(head_dim):
            top[i] = (2 * exponents[head * head_dim + i] + 1) << low_bits
            flip[i] = np.int64(flips[head * head_dim + i]) << sign_shift
        for token in range(num_tokens):
            at = (head * num_tokens + token) * head_dim
            row, line = items[at : at + head_dim], symbols[at : at + head_dim]
            if low_bits == 6:  # bf16, in 16 bits a number
                for i in range(head_dim):
                    below = np.uint16(top[i] - (row[i] & np.uint16(0x7FC0)))
                    distance = min(below, np.uint16(31 << 6)) >> np.uint16(6)
                    line[i] = distance | (np.uint16(row[i] ^ flip[i]) >> np.uint16(15)) << np.uint8(5)
            else:
                for i in range(head_dim):
                    distance = (np.int64(top[i]) >> low_bits) - (
                        (np.int64(row[i]) >> low_bits) & magnitude_mask
                    )
                    sign = (np.int64(row[i]) ^ np.int64(flip[i])) >> sign_shift
                    line[i] = sign << 5 | (31 if (distance < 0) | (distance > 30) else distance)


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


@inlined
def _encode_lanes(lanes: Any, shape: Any, tables: Any, ranges: Any, symbols: Any) -> None:
    """Code all symbols, last ones first, so that decoding goes forward."""
    num_heads, num_tokens, head_dim = shape
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


@inlined
def _write_head(body: Any, base: int, width: int, zero_bits: int, channels: Any) -> int:
    """Write what is said of the body and of every channel; return its end."""
    exponents, tables, flips = channels
    body[0], body[1], body[2], body[3] = base, width - 5, zero_bits, 0
    at, num_held = 8, 0
    held: Any = 0
    for channel in range(len(exponents)):
        value = (exponents[channel] - base) << 5 | np.int64(flips[channel]) << 4
        held |= (value | np.int64(tables[channel])) << num_held
        num_held += width
        while num_held >= 8:
            body[at] = held & 255
            held >>= 8
            num_held -= 8
            at += 1
    if num_held:
        body[at] = held
        at += 1
    return at


@inlined
def _write_lanes(body: Any, at: int, lanes: Any, capacity: int) -> int:
    """Write states, lengths and words, which stand at the end of their rows; return the end."""
    states, places, words = lanes
    num_lanes = len(states)
    end = at + 6 * num_lanes
    for lane in range(num_lanes):
        for byte in range(4):
            body[at + 4 * lane + byte] = (np.int64(states[lane]) >> 8 * byte) & 255
        stop = (lane + 1) * capacity
        run = words[np.int64(places[lane]) : stop]
        body[at + 4 * num_lanes + 2 * lane] = len(run) & 255
        body[at + 4 * num_lanes + 2 * lane + 1] = len(run) >> 8
        to = body[end : end + 2 * len(run)].view(np.uint16)
        for i in range(len(run)):
            to[i] = run[i]
        end += 2 * len(run)
    return end


@inlined
def _write_escapes(body: Any, at: int, symbols: Any, layout: Any, items: Any) -> int:
    """Write the magnitudes of all escapes, as far as there is room; return their end."""
    low_bits, magnitude_mask, _ = layout
    eights = symbols.view(np.uint64)
    for start in range(0, len(eights), 16):
        some = eights[start : start + 16]
        found = np.uint64(0)
        for i in range(len(some)):
            found |= (some[i] & (np.uint64(31) * _EVERY_BYTE)) + _EVERY_BYTE
        if found & (np.uint64(32) * _EVERY_BYTE):
            for i in range(8 * start, min(8 * start + 128, len(items))):
                if symbols[i] & 31 == 31 and at + 2 <= len(body):
                    magnitude = (np.int64(items[i]) >> low_bits) & magnitude_mask
                    body[at], body[at + 1] = magnitude & 255, magnitude >> 8
                    at += 2
    return at


@inlined
def _count_zero_bits(items: Any, low_bits: int) -> int:
    """Return how many low bits, of ``low_bits`` at most, no item has set."""
    together: Any = 1 << low_bits
    for i in range(len(items)):
        together |= np.int64(items[i])
        if together & 1:
            return 0
    zero_bits = 0
    while together >> zero_bits & 1 == 0:
        zero_bits += 1
    return zero_bits


@inlined
def _split_six(items: Any, low: Any) -> None:
    """Write six low bits of a multiple of four items: bf16, as a rule."""
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
def _split_low_bits(items: Any, zero_bits: int, width: int, low: Any) -> None:
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


@compiled
def encode_chunk(items: Any, sizes: Any, coder: Any, kept: Any, body: Any) -> int:
    """Encode flat ``items`` and return the length of their body, or 0 if there is none.

    Parameters
    ----------
    items : uint8, uint16 or uint32 [H * T * D]
        Not empty.
    sizes : tuple of int
        H, T, D; low bits, magnitude mask, sign shift of the KV dtype.
    coder : tuple
        Costs, ranges and reciprocals of :func:`.tables.coder`.
    kept : tuple
        Symbols, uint8, a multiple of 8 not below the number of items; words, uint16, one for each
        symbol of a lane and one more, for each lane. Written to.
    body : uint8 [bytes]
        Written to: as many bytes as a body may have. There is none where it does not fit.
    """
    shape, layout = (sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5])
    costs, entries, reciprocals = coder
    symbols, words = kept
    num_channels = shape[0] * shape[2]
    num_lanes, num_items = min(32, num_channels), len(items)
    exponents, tables = np.empty(num_channels, np.int64), np.empty(num_channels, np.uint64)
    channels = (exponents, tables, np.empty(num_channels, np.uint8))
    _describe(items, shape, layout, costs, channels)
    symbols[num_items:] = 0
    _split_symbols(items, shape, layout, channels, symbols)
    states, places = np.full(num_lanes, np.uint64(65536)), np.empty(num_lanes, np.uint64)
    capacity, num_words = len(words) // num_lanes, 0
    for lane in range(num_lanes):
        places[lane] = np.uint64((lane + 1) * capacity)
    _encode_lanes((states, places, words), shape, tables, (entries, reciprocals), symbols)
    for lane in range(num_lanes):
        length = (lane + 1) * capacity - np.int64(places[lane])
        num_words += length
        if length > 65535:
            return 0
    base, width, highest = exponents.min(), 5, exponents.max()
    while highest - base >> (width - 5):
        width += 1
    zero_bits = _count_zero_bits(items, layout[0])
    low_bits = layout[0] - zero_bits
    low_length = num_items * (low_bits // 8)
    for bits in (4, 2, 1):
        if low_bits & bits:
            low_length += (num_items * bits + 7) // 8
    length = 8 + (num_channels * width + 7) // 8 + 6 * num_lanes + 2 * num_words + low_length
    if length > len(body):
        return 0
    lanes_at = _write_head(body, base, width, zero_bits, channels)
    escapes_at = _write_lanes(body, lanes_at, (states, places, words), capacity)
    low_at = _write_escapes(body, escapes_at, symbols, layout, items)
    if low_at + low_length > len(body):
        return 0
    num_escapes = (low_at - escapes_at) // 2
    for byte in range(4):
        body[4 + byte] = (num_escapes >> 8 * byte) & 255
    if low_bits == 6 and num_items % 4 == 0:
        _split_six(items, body[low_at : low_at + low_length])
    else:
        _split_low_bits(items, zero_bits, low_bits, body[low_at : low_at + low_length])
    return int(low_at + low_length)
