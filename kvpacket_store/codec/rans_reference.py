"""The kernels of level ``fast`` in numpy: slow, and what the compiled ones must do.

The names, arguments and results are those of ``rans_describe``, ``rans_encode`` and
``rans_decode``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .tables import ESCAPE

__all__ = [
    "choose",
    "count",
    "count_bf16",
    "decode_lanes",
    "encode_lanes",
    "find_highest",
    "join_bf16",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
    "split_bf16",
    "split_low_bits",
    "split_symbols",
    "take_escapes",
    "write_lanes",
]
_BF16 = (6, 511, 15)


def _by_channel(flat: Any, shape: Any) -> Any:
    """Return ``[H, T, D]`` as ``[T, H * D]``; a copy."""
    num_heads, num_tokens, head_dim = shape
    parts = np.asarray(flat).reshape(shape).transpose(1, 0, 2)
    return parts.reshape(num_tokens, num_heads * head_dim).astype(np.int64)


def _flat(by_channel: Any, shape: Any) -> Any:
    num_heads, num_tokens, head_dim = shape
    return by_channel.reshape(num_tokens, num_heads, head_dim).transpose(1, 0, 2).reshape(-1)


def find_highest(items: Any, shape: Any, layout: Any, every: int, highest: Any) -> None:
    """See ``rans_describe.find_highest``."""
    magnitudes = _by_channel(items, shape)[::every] >> layout[0] & layout[1]
    quarters = range(min(4, len(magnitudes)))
    highest[:] = 4 + np.min([magnitudes[first::4].max(axis=0) for first in quarters], axis=0)


def count(items: Any, shape: Any, layout: Any, every: int, highest: Any, counts: Any) -> None:
    """See ``rans_describe.count``."""
    symbols = _by_channel(items, shape)[::every] >> layout[0]
    magnitudes, signs = symbols & layout[1], (symbols > layout[1]).astype(np.int64)
    distances = np.clip(highest - magnitudes, 0, 63)
    counts[:] = 0
    np.add.at(counts.reshape(-1, 2, 64), (np.arange(len(highest)), signs, distances), 1)


def count_bf16(items: Any, shape: Any, every: int, highest: Any, counts: Any) -> None:
    """See ``rans_describe.count_bf16``."""
    count(items, shape, _BF16, every, highest, counts)


def choose(
    counts: Any, highest: Any, num_counted: int, layout: Any, costs: Any, channels: Any, said: Any
) -> Any:
    """See ``rans_describe.choose``."""
    tables, tops, flips = channels
    counted = counts.reshape(-1, 2, 64).astype(np.int64)
    above = np.cumsum(counted.sum(axis=1), axis=1)[:, :63]
    usual = np.maximum(highest - np.sum(100 * above <= 3 * num_counted, axis=1), 0) >> 1
    flipped = (2 * counted[:, 1].sum(axis=1) > num_counted).astype(np.int64)
    below = np.clip((2 * usual + 4 - highest)[:, None] + np.arange(64), 0, 39)
    windows = np.zeros((len(usual), 80), np.int64)
    for channel, flip in enumerate(flipped):
        np.add.at(windows[channel], below[channel], counted[channel, flip])
        np.add.at(windows[channel], 40 + below[channel], counted[channel, 1 - flip])
    prices = np.argmin(windows @ costs.reshape(80, 32).astype(np.int64), axis=1)
    exponents = np.minimum(usual + (prices >> 4), layout[1] >> 1)
    tables[:], tops[:] = prices & 15, 2 * exponents + 1 << layout[0]
    flips[:] = flipped << layout[2]
    base, width = int(exponents.min()), 5 + int(np.ptp(exponents)).bit_length()
    values = exponents - base << 5 | flipped << 4 | prices & 15
    bits = (values[:, None] >> np.arange(width) & 1).astype(np.uint8)
    packed = np.packbits(bits, bitorder="little")
    said[: len(packed)] = packed
    return base, width


def split_symbols(items: Any, shape: Any, layout: Any, channels: Any, symbols: Any) -> None:
    """See ``rans_encode.split_symbols``."""
    _, tops, flips = channels
    top_bits = _by_channel(items, shape) >> layout[0]
    distances = (tops.astype(np.int64) >> layout[0]) - (top_bits & layout[1])
    distances[(distances < 0) | (distances >= ESCAPE)] = ESCAPE
    signs = (top_bits > layout[1]) ^ flips.astype(bool)
    symbols[: len(items)], symbols[len(items) :] = _flat(signs << 5 | distances, shape), 0


def split_bf16(items: Any, shape: Any, channels: Any, symbols: Any, low: Any) -> None:
    """See ``rans_encode.split_bf16``."""
    split_symbols(items, shape, _BF16, channels, symbols)
    split_low_bits(items, 0, 6, low)


def encode_lanes(lanes: Any, shape: Any, tables: Any, ranges: Any, symbols: Any) -> None:
    """See ``rans_encode.encode_lanes``."""
    states, places, words = lanes
    entries, _ = ranges
    by_channel = _by_channel(symbols[: shape[0] * shape[1] * shape[2]], shape)
    states[:], places[:] = 1 << 16, len(words) // len(states) * np.arange(1, len(states) + 1)
    for channel in reversed(range(len(tables))):
        lane = channel % 32
        for token in reversed(range(shape[1])):
            entry = int(entries[64 * int(tables[channel]) + by_channel[token, channel]])
            frequency, first, state = entry >> 52, entry & 0xFFFF, int(states[lane])
            if state >= frequency << 20:
                places[lane] -= np.uint64(1)
                words[places[lane]] = state & 0xFFFF
                state >>= 16
            states[lane] = (state // frequency << 12) + state % frequency + first


def write_lanes(lanes: Any, body: Any) -> int:
    """See ``rans_encode.write_lanes``."""
    states, places, words = lanes
    rows = words.reshape(len(states), -1)
    lengths = rows.shape[1] * np.arange(1, len(rows) + 1) - places.astype(np.int64)
    if lengths.max() > 0xFFFF:
        return -1
    runs = [row[len(row) - length :] for row, length in zip(rows, lengths, strict=True)]
    parts = [states.astype("<u4"), lengths.astype("<u2"), *runs]
    written = np.frombuffer(b"".join(part.tobytes() for part in parts), np.uint8)
    if len(written) > len(body):
        return -1
    body[: len(written)] = written
    return len(written)


def take_escapes(items: Any, symbols: Any, layout: Any, escapes: Any) -> int:
    """See ``rans_encode.take_escapes``."""
    escaping = items[symbols[: len(items)] & ESCAPE == ESCAPE].astype(np.int64)
    escapes[: len(escaping)] = escaping >> layout[0] & layout[1]
    return len(escaping)


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
    tables[:], flips[:] = values & 15, (values >> 4 & 1) << layout[2]
    tops[:] = (2 * (base + (values >> 5)) + 1 & layout[1]) << layout[0]
    return not bits[used:].any()


def read_lanes(heads: Any, stored: Any, lanes: Any) -> bool:
    """See ``rans_decode.read_lanes``."""
    states, places, words = lanes
    states[:] = np.frombuffer(heads.tobytes(), "<u4", len(states))
    lengths = np.frombuffer(heads.tobytes(), "<u2", offset=4 * len(states)).astype(np.int64)
    places[0], places[1:] = 0, np.cumsum(lengths)
    read = np.frombuffer(stored.tobytes(), "<u2")
    words[: len(read)], words[len(read) :] = read, 0
    return bool((states >= 1 << 16).all()) and int(lengths.sum()) == len(read)


def decode_lanes(lanes: Any, shape: Any, tables: Any, slots: Any, symbols: Any) -> bool:
    """See ``rans_decode.decode_lanes``."""
    states, ends, words = lanes
    places = ends.astype(np.int64)
    by_channel = np.empty((shape[1], len(tables)), np.int64)
    for channel in range(len(tables)):
        lane = channel % 32
        for token in range(shape[1]):
            state = int(states[lane])
            entry = int(slots[int(tables[channel]) << 12 | state & 4095])
            state = (entry >> 20) * (state >> 12) + (entry >> 8 & 4095)
            if state < 1 << 16:
                state = state << 16 | int(words[places[lane]])
                places[lane] += 1
            states[lane], by_channel[token, channel] = state, entry & 63
    symbols[: by_channel.size], symbols[by_channel.size :] = _flat(by_channel, shape), 0
    return bool((states == 1 << 16).all() and (places[:-1] == ends[1:]).all())


def join_bf16(low: Any, symbols: Any, shape: Any, channels: Any, items: Any) -> None:
    """See ``rans_decode.join_bf16``."""
    join_low_bits(low, 6, items)
    join_symbols(symbols, shape, _BF16, channels, 0, items)


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
) -> None:
    """See ``rans_decode.join_symbols``."""
    _, tops, flips = channels
    by_channel = _by_channel(symbols[: len(items)], shape)
    magnitudes = tops - ((by_channel & ESCAPE) << layout[0]) & layout[1] << layout[0]
    high = magnitudes | (by_channel >> 5 << layout[2] ^ flips)
    items[:] = items.astype(np.int64) << zero_bits | _flat(high, shape)


def place_escapes(stored: Any, symbols: Any, layout: Any, items: Any) -> bool:
    """See ``rans_decode.place_escapes``."""
    magnitudes = np.frombuffer(stored.tobytes(), "<u2").astype(np.int64)
    places = symbols[: len(items)] & ESCAPE == ESCAPE
    if places.sum() != len(magnitudes) or (magnitudes > layout[1]).any():
        return False
    kept = items[places].astype(np.int64) & ~(layout[1] << layout[0])
    items[places] = kept | magnitudes << layout[0]
    return True
