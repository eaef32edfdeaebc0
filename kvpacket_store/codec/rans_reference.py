"""The kernels of level ``fast`` in numpy: slow, and what the compiled ones must do.

The names, arguments and results are those of ``rans_encode`` and ``rans_decode``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .tables import ESCAPE

__all__ = [
    "center",
    "choose",
    "count",
    "decode_lanes",
    "encode_lanes",
    "find_highest",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
    "split_low_bits",
    "split_symbols",
]


def _by_channel(flat: Any, shape: Any) -> Any:
    """Return ``[H, T, D]`` as ``[T, H * D]``; a copy."""
    num_heads, num_tokens, head_dim = shape
    parts = np.asarray(flat).reshape(shape).transpose(1, 0, 2)
    return parts.reshape(num_tokens, num_heads * head_dim).astype(np.int64)


def _flat(by_channel: Any, shape: Any) -> Any:
    num_heads, num_tokens, head_dim = shape
    return by_channel.reshape(num_tokens, num_heads, head_dim).transpose(1, 0, 2).reshape(-1)


def find_highest(items: Any, shape: Any, layout: Any, every: int, highest: Any) -> None:
    """See ``rans_encode.find_highest``."""
    magnitudes = _by_channel(items, shape)[::every] >> layout[0] & layout[1]
    quarters = range(min(4, len(magnitudes)))
    highest[:] = 4 + np.min([magnitudes[first::4].max(axis=0) for first in quarters], axis=0)


def count(items: Any, shape: Any, layout: Any, every: int, highest: Any, counts: Any) -> None:
    """See ``rans_encode.count``."""
    symbols = _by_channel(items, shape)[::every] >> layout[0]
    magnitudes, signs = symbols & layout[1], (symbols > layout[1]).astype(np.int64)
    distances = np.clip(highest.astype(np.int64) - magnitudes, 0, 63)
    np.add.at(counts, (np.arange(len(highest)), signs, distances), 1)


def center(
    counts: Any, highest: Any, num_counted: int, usual: Any, flips: Any, windows: Any
) -> None:
    """See ``rans_encode.center``."""
    above = np.cumsum(counts.sum(axis=1), axis=1)[:, :63]
    distances = np.sum(100 * above <= 3 * num_counted, axis=1)
    usual[:] = np.maximum(highest.astype(np.int64) - distances, 0) >> 1
    flips[:] = 2 * counts[:, 1].sum(axis=1) > num_counted
    start = 2 * usual + 4 - highest
    below = np.clip(start[:, None] + np.arange(64), 0, 39)
    for channel, flip in enumerate(flips):
        np.add.at(windows[channel], below[channel], counts[channel, flip])
        np.add.at(windows[channel], 40 + below[channel], counts[channel, 1 - flip])


def choose(windows: Any, costs: Any, chosen: Any) -> None:
    """See ``rans_encode.choose``."""
    chosen[:] = np.argmin(windows.astype(np.int64) @ costs.astype(np.int64).T, axis=1)


def split_symbols(items: Any, shape: Any, layout: Any, channels: Any, symbols: Any) -> int:
    """See ``rans_encode.split_symbols``."""
    _, tops, flips = channels
    top_bits = _by_channel(items, shape) >> layout[0]
    distances = tops.astype(np.int64) - (top_bits & layout[1])
    distances[(distances < 0) | (distances >= ESCAPE)] = ESCAPE
    signs = (top_bits > layout[1]) ^ flips.astype(bool)
    symbols[:] = _flat(signs << 5 | distances, shape)
    return int(np.sum(distances == ESCAPE))


def encode_lanes(symbols: Any, shape: Any, tables: Any, ranges: Any, lanes: Any) -> None:
    """See ``rans_encode.encode_lanes``."""
    states, places, words = lanes
    by_channel = _by_channel(symbols, shape)
    for channel in reversed(range(len(tables))):
        lane = channel % 32
        for token in reversed(range(shape[1])):
            entry = int(ranges[64 * int(tables[channel]) + by_channel[token, channel]])
            frequency, first, state = entry >> 12 & 4095, entry & 4095, int(states[lane])
            if state >= frequency << 20:
                places[lane] -= np.uint64(1)
                words[places[lane]] = state & 0xFFFF
                state >>= 16
            states[lane] = (state // frequency << 12) + state % frequency + first


def _low_parts(num_items: int, width: int) -> Any:
    """Yield (first bit, bits, bytes) of every part of the low bits."""
    first = 0
    for bits in [8] * (width // 8) + [bits for bits in (4, 2, 1) if width & bits]:
        yield first, bits, (num_items * bits + 7) // 8
        first += bits


def split_low_bits(items: Any, zero_bits: int, width: int, low: Any) -> None:
    """See ``rans_encode.split_low_bits``."""
    at = 0
    for first, bits, num_bytes in _low_parts(len(items), width):
        values = np.zeros(num_bytes * (8 // bits), np.int64)
        values[: len(items)] = items.astype(np.int64) >> (zero_bits + first) & ((1 << bits) - 1)
        shifts = bits * np.arange(8 // bits)[:, None]
        low[at : at + num_bytes] = (values.reshape(-1, num_bytes) << shifts).sum(axis=0)
        at += num_bytes


def read_channels(said: Any, base: int, width: int, layout: Any, channels: Any) -> bool:
    """See ``rans_decode.read_channels``."""
    tables, tops, flips = channels
    bits = np.unpackbits(said, bitorder="little").astype(np.int64)
    used = len(tables) * width
    values = (bits[:used].reshape(-1, width) << np.arange(width)).sum(axis=1)
    tables[:], flips[:] = values & 15, values >> 4 & 1
    tops[:] = (2 * (base + (values >> 5)) + 1) & layout[1]
    return not bits[used:].any()


def read_lanes(heads: Any, stored: Any, lanes: Any, ends: Any) -> bool:
    """See ``rans_decode.read_lanes``."""
    states, places, words = lanes
    states[:] = np.frombuffer(heads.tobytes(), "<u4", len(states))
    lengths = np.frombuffer(heads.tobytes(), "<u2", offset=4 * len(states)).astype(np.int64)
    ends[:] = np.cumsum(lengths)
    places[:] = np.cumsum(lengths) - lengths
    read = np.frombuffer(stored.tobytes(), "<u2")
    words[: len(read)], words[len(read) :] = read, 0
    return bool((states >= 1 << 16).all()) and int(lengths.sum()) == len(read)


def decode_lanes(lanes: Any, shape: Any, tables: Any, slots: Any, symbols: Any) -> None:
    """See ``rans_decode.decode_lanes``."""
    states, places, words = lanes
    by_channel = np.empty((shape[1], len(tables)), np.int64)
    for channel in range(len(tables)):
        lane = channel % 32
        for token in range(shape[1]):
            state = int(states[lane])
            entry = int(slots[int(tables[channel]) << 12 | state & 4095])
            state = (entry >> 20) * (state >> 12) + (entry >> 8 & 4095)
            if state < 1 << 16:
                state = state << 16 | int(words[places[lane]])
                places[lane] += np.uint64(1)
            states[lane], by_channel[token, channel] = state, entry & 63
    symbols[:] = _flat(by_channel, shape)


def join_low_bits(low: Any, width: int, items: Any) -> None:
    """See ``rans_decode.join_low_bits``."""
    values, at = np.zeros(len(items), np.int64), 0
    for first, bits, num_bytes in _low_parts(len(items), width):
        part = low[at : at + num_bytes].astype(np.int64)
        spread = part >> bits * np.arange(8 // bits)[:, None] & ((1 << bits) - 1)
        values |= spread.reshape(-1)[: len(items)] << first
        at += num_bytes
    items[:] = values


def join_symbols(
    symbols: Any, shape: Any, layout: Any, channels: Any, zero_bits: int, items: Any
) -> int:
    """See ``rans_decode.join_symbols``."""
    _, tops, flips = channels
    by_channel = _by_channel(symbols, shape)
    magnitudes = (tops - (by_channel & ESCAPE)) & layout[1]
    signs = by_channel >> 5 ^ flips
    high = magnitudes << layout[0] | signs << (8 * items.itemsize - 1)
    items[:] = items.astype(np.int64) << zero_bits | _flat(high, shape)
    return int(np.sum(symbols & ESCAPE == ESCAPE))


def place_escapes(stored: Any, symbols: Any, layout: Any, items: Any) -> bool:
    """See ``rans_decode.place_escapes``."""
    magnitudes = np.frombuffer(stored.tobytes(), "<u2").astype(np.int64)
    places = symbols & ESCAPE == ESCAPE
    kept = items[places].astype(np.int64) & ~(layout[1] << layout[0])
    items[places] = kept | (magnitudes & layout[1]) << layout[0]
    return bool((magnitudes <= layout[1]).all())
