"""Which table, top and flip each channel of a chunk gets, compiled: the first part of encoding.

Arguments are those of ``rans_encode``; ``rans_reference`` is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import compiled, inlined

__all__ = ["choose", "count", "count_bf16", "find_highest"]


@compiled
def find_highest(items: Any, shape: Any, layout: Any, every: int, highest: Any) -> None:
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
        for i in range(head_dim):
            lowest[i] = mask
        for first in range(0, min(4 * every, num_tokens), every):
            for i in range(head_dim):
                peak[i] = 0
            for token in range(first, num_tokens, 4 * every):
                at = (head * num_tokens + token) * head_dim
                row = items[at : at + head_dim]
                for i in range(head_dim):
                    peak[i] = max(peak[i], row[i] & mask)
            for i in range(head_dim):
                lowest[i] = min(lowest[i], peak[i])
        for i in range(head_dim):
            highest[head * head_dim + i] = (np.int64(lowest[i]) >> low_bits) + 4


@compiled
def count(items: Any, shape: Any, layout: Any, every: int, highest: Any, counts: Any) -> None:
    """Count each channel's items by sign and distance (0 to 63) below its highest magnitude.

    At most 255 tokens are counted.
    """
    counts[:] = 0
    num_heads, num_tokens, head_dim = shape
    low_bits, magnitude_mask, _ = layout
    for head in range(num_heads):
        top, counted = highest[head * head_dim :], counts[128 * head * head_dim :]
        for token in range(0, num_tokens, every):
            at = (head * num_tokens + token) * head_dim
            row = items[at : at + head_dim]
            for i in range(head_dim):
                symbol = np.int64(row[i]) >> low_bits
                distance = top[i] - (symbol & magnitude_mask)
                distance = min(max(distance, 0), 63)
                counted[np.uint64(128 * i + distance + (64 if symbol > magnitude_mask else 0))] += 1


@compiled
def count_bf16(items: Any, shape: Any, every: int, highest: Any, counts: Any) -> None:
    """Do what :func:`count` does, in numbers of 16 bits."""
    num_heads, num_tokens, head_dim = shape
    top, places = np.empty(head_dim, np.uint16), np.empty(head_dim, np.uint8)
    counts[:] = 0
    for head in range(num_heads):
        for i in range(head_dim):
            top[i] = highest[head * head_dim + i] << 6
        counted = counts[128 * head * head_dim :]
        for token in range(0, num_tokens, every):
            at = (head * num_tokens + token) * head_dim
            row = items[at : at + head_dim]
            for i in range(head_dim):
                below = top[i] - min(top[i], np.uint16(row[i] & np.uint16(0x7FC0)))
                distance = min(np.uint16(below), np.uint16(63 << 6)) >> np.uint16(6)
                places[i] = distance | (row[i] >> np.uint16(15)) << np.uint8(6)
            at = 0
            for i in range(head_dim):
                counted[np.uint64(at | places[i])] += 1
                at += 128


@inlined
def _center(counts: Any, highest: int, num_counted: int) -> Any:
    """Find where a channel mostly lies: an exponent, and whether most items are negative.

    At most 3 % of the items lie above the exponent.
    """
    above: Any = 0
    distance, negative = 0, 0
    for i in range(64, 128):
        negative += counts[i]
    while distance < 63:
        above += np.int64(counts[distance]) + np.int64(counts[64 + distance])
        if 100 * above > 3 * num_counted:
            break
        distance += 1
    return (max(highest - distance, 0)) >> 1, 1 if 2 * negative > num_counted else 0


@inlined
def _cheapest(counts: Any, start: int, flip: int, costs: Any, totals: Any) -> int:
    """Return the cheapest of the 32 prices: 16 * octaves up + table.

    The floats are integers below 2**24: their sums are exact in any order.
    """
    totals[:] = 0
    for negative in range(2):
        side = counts[64 * negative : 64 * negative + 64]
        first, last = 0, 63
        while first < 64 and side[first] == 0:
            first += 1
        while last > first and side[last] == 0:
            last -= 1
        for i in range(first, last + 1):
            many = np.float32(side[i])
            at = 32 * (min(max(start + i, 0), 39) + 40 * (negative ^ flip))
            prices = costs[at : at + 32]
            for option in range(len(totals)):  # a constant would keep it from becoming vector code
                totals[option] += many * prices[option]
    best = 0
    for option in range(32):
        if totals[option] < totals[best]:
            best = option
    return best


@compiled
def choose(
    counts: Any, highest: Any, num_counted: int, layout: Any, costs: Any, channels: Any, said: Any
) -> Any:
    """Choose each channel's table, top and flip, and write what is said of them.

    Any choice decodes, these are cheap. Returns the least exponent, the bits a channel.
    """
    tables, tops, flips = channels
    low_bits, magnitude_mask, sign_shift = layout
    totals, exponents = np.empty(32, np.float32), np.empty(len(tops), np.int64)
    least, most, width = magnitude_mask, 0, 5
    for channel in range(len(highest)):
        counted, top = counts[128 * channel : 128 * channel + 128], highest[channel]
        usual, flip = _center(counted, top, num_counted)
        price = _cheapest(counted, 2 * usual + 4 - top, flip, costs, totals)
        exponent = min(usual + (price >> 4), magnitude_mask >> 1)
        least, most = min(least, exponent), max(most, exponent)
        exponents[channel], tables[channel] = exponent, np.uint64(price & 15)
        tops[channel], flips[channel] = (2 * exponent + 1) << low_bits, flip << sign_shift
    while (most - least) >> (width - 5):
        width += 1
    at, num_held = 0, 0
    held: Any = 0
    for channel in range(len(tops)):
        value = (exponents[channel] - least) << 5 | (16 if flips[channel] else 0)
        held |= (value | np.int64(tables[channel])) << num_held
        num_held += width
        while num_held > 0:
            said[at] = held & 255
            if num_held < 8:
                break
            held >>= 8
            num_held -= 8
            at += 1
    return least, width
