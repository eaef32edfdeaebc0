"""The kernels of level ``linear`` in numpy and plain integers: slow, and what compiled ones do.

The names, arguments and results are those of ``decode_kernel`` and ``encode_kernel``.
"""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

import numpy as np

from .items import MAX_BIN, MAX_OCTAVES
from .shapes import BELOW, ESCAPE, GROUP, ZERO

__all__ = ["decode_chunk", "encode_lanes", "find_symbols", "let_be_context"]


class _Channel(NamedTuple):
    """What a pack says of a channel."""

    step: int
    center: int
    shift: int
    base: int
    multiplier: int
    down: int
    drop: int
    coarse_table: int
    fine_table: int


def _channels(columns: Any) -> list[_Channel]:
    return [_Channel(*(int(column[c]) for column in columns)) for c in range(len(columns[0]))]


def _bin_of(item: int, step: int, layout: Any) -> tuple[int, bool]:
    """Return an item's bin, saturated, and whether the item must escape."""
    mantissa_bits, exponent_mask, sign_shift = layout
    exponent, mantissa = item >> mantissa_bits & exponent_mask, item & ((1 << mantissa_bits) - 1)
    significand, up = 1 << mantissa_bits | mantissa, exponent - step
    size = significand << max(up, 0) >> mantissa_bits >> max(-up, 0)
    if exponent == exponent_mask:
        size = MAX_BIN
    escapes = exponent in (0, exponent_mask) or size > MAX_BIN or exponent < step - 1 - MAX_OCTAVES
    size = min(size, MAX_BIN)
    return (-1 - size if item >> sign_shift else size), escapes


def _rest_of(item: int, step: int, layout: Any) -> tuple[int, int]:
    """Return the rest of an item that does not escape, and its bits."""
    mantissa_bits, exponent_mask, _ = layout
    exponent, mantissa = item >> mantissa_bits & exponent_mask, item & ((1 << mantissa_bits) - 1)
    if exponent >= step:
        bits = max(mantissa_bits - (exponent - step), 0)
        return mantissa & ((1 << bits) - 1), bits
    octaves = step - 1 - exponent
    return (2 * mantissa + 1) << octaves, mantissa_bits + 1 + octaves


def _join(found: int, seen: int, step: int, layout: Any) -> tuple[int, int]:
    """Return the item of a bin and the bits that follow, and how many of them are its rest."""
    mantissa_bits, exponent_mask, sign_shift = layout
    found = min(max(found, -1 - MAX_BIN), MAX_BIN)
    size, sign = (-1 - found, 1) if found < 0 else (found, 0)
    if size == 0:
        octaves = next((bit for bit in range(MAX_OCTAVES) if seen >> bit & 1), MAX_OCTAVES)
        mantissa = seen >> (octaves + 1) & ((1 << mantissa_bits) - 1)
        exponent, bits = (step - 1 - octaves) & exponent_mask, octaves + 1 + mantissa_bits
        return sign << sign_shift | exponent << mantissa_bits | mantissa, bits
    octave = size.bit_length() - 1
    bits = max(mantissa_bits - octave, 0)
    mantissa = size - (1 << octave) << mantissa_bits >> octave | seen & ((1 << bits) - 1)
    magnitude = (step + octave << mantissa_bits | mantissa) & ((1 << sign_shift) - 1)
    return sign << sign_shift | magnitude, bits


def _predict(group: int, model: Any, context: Any, first_pair: int) -> Any:
    """Return the sums [16, T] of a group, exact."""
    matrices, starts, strides = model[:3]
    stride = int(strides[group])
    weights = matrices[starts[group] :][: GROUP * stride].reshape(GROUP, stride)
    rows = context.transpose(1, 3, 0, 2).reshape(2 * context.shape[1], -1)
    seen = rows[2 * first_pair :][:stride]
    return weights.astype(np.int64) @ seen.astype(np.int64)


def _place(sums: Any, channel: _Channel, num_tokens: int) -> Any:
    """Return predicted bins [T]."""
    constant = (channel.base << (channel.down - 8)) + (1 << (channel.down - 1))
    return (sums[:num_tokens] * channel.multiplier + constant) >> channel.down


def _rebuild(predicted: Any, coarse: Any, drop: int) -> Any:
    margin, start = (1 << drop) // 4, coarse << drop
    return np.clip(predicted, start + margin, start + (1 << drop) - 1 - margin)


def _write_context(rebuilt: Any, channel: _Channel, context: Any, row: int) -> None:
    half = (1 << channel.shift) // 2
    units = np.clip((rebuilt - channel.center + half) >> channel.shift, -127, 127)
    for token, unit in enumerate(units):
        context[token // 16, row // 2, token % 16, row % 2] = unit


def _coarse_tables(predicted: Any, channel: _Channel) -> Any:
    return channel.coarse_table + predicted % (1 << channel.drop)


def _fine_tables(predicted: Any, coarse: Any, channel: _Channel) -> Any:
    most = (1 << channel.drop) - 1 + 2 * BELOW
    distance = predicted - (coarse << channel.drop) + BELOW
    return channel.fine_table + np.clip(distance, 0, most)


def let_be_context(geometry: Any, channels: Any, context: Any, chunk: Any) -> None:
    """See ``decode_kernel.let_be_context``."""
    layout, _, first_row = geometry
    head_dim = chunk.shape[2]
    for c, channel in enumerate(_channels(channels)):
        items = chunk[c // head_dim, :, c % head_dim]
        found = np.array([_bin_of(int(item), channel.step, layout)[0] for item in items])
        _write_context(found, channel, context, first_row + c)


def find_symbols(
    geometry: Any, channels: Any, model: Any, context: Any, coded: Any, chunk: Any
) -> Any:
    """See ``encode_kernel.find_symbols``."""
    layout, first_pair, first_row = geometry
    symbols, which, fine_symbols, fine_which, escaped, words = coded
    _, num_tokens, head_dim = chunk.shape
    num_escaped, rest, position = 0, 0, 0
    for c, channel in enumerate(_channels(channels)):
        if c % GROUP == 0:
            sums = _predict(c // GROUP, model, context, first_pair)
        items = [int(item) for item in chunk[c // head_dim, :, c % head_dim]]
        pairs = [_bin_of(item, channel.step, layout) for item in items]
        found, escaping = np.array(pairs)[:, 0], np.array(pairs)[:, 1].astype(bool)
        predicted, coarse = _place(sums[c % GROUP], channel, num_tokens), found >> channel.drop
        symbol = coarse - (predicted >> channel.drop) + ZERO
        escaping |= (symbol < 0) | (symbol >= ESCAPE)
        symbols[c] = np.where(escaping, ESCAPE, symbol)
        which[c] = _coarse_tables(predicted, channel)
        rebuilt = np.where(escaping, found, _rebuild(predicted, coarse, channel.drop))
        _write_context(rebuilt, channel, context, first_row + c)
        if channel.drop:
            fine_symbols[c] = found - (coarse << channel.drop)
            fine_which[c] = _fine_tables(predicted, coarse, channel)
        for item, escapes in zip(items, escaping, strict=True):
            if escapes:
                escaped[num_escaped] = item
                num_escaped += 1
            else:
                value, bits = _rest_of(item, channel.step, layout)
                rest, position = rest | value << position, position + bits
    words[:] = np.frombuffer(rest.to_bytes(words.nbytes, "little"), "<u4")
    return num_escaped, position


def encode_lanes(lanes: Any, which: Any, cumulative: Any, symbols: Any, used: Any) -> None:
    """See ``encode_kernel.encode_lanes``."""
    states, places, words = lanes
    for c in reversed(range(len(symbols))):
        for token in reversed(range(symbols.shape[1] if used[c] else 0)):
            lane = token % len(states)
            sums, symbol = cumulative.reshape(-1, 66)[int(which[c, token])], int(symbols[c, token])
            first, frequency = int(sums[symbol]), int(sums[symbol + 1]) - int(sums[symbol])
            state = int(states[lane])
            if state >= frequency << 20:
                places[lane] -= np.uint64(1)
                words[places[lane]] = state & 0xFFFF
                state >>= 16
            states[lane] = (state // frequency << 12) + state % frequency + first


def _pop_channel(lanes: Any, which: Any, tables: Any) -> Any:
    """Return a channel's symbols [T]."""
    states, places, words = lanes
    symbols = np.empty(len(which), np.int64)
    for token in range(len(which)):
        lane = token % len(states)
        state = int(states[lane])
        sums, slot = tables[0].reshape(-1, 66)[int(which[token]), :65].tolist(), state & 4095
        symbol = bisect.bisect_right(sums, slot) - 1
        state = (sums[symbol + 1] - sums[symbol]) * (state >> 12) + slot - sums[symbol]
        if state < 1 << 16:
            state = state << 16 | int(words[places[lane]])
            places[lane] += np.uint64(1)
        states[lane], symbols[token] = state, symbol
    return symbols


def decode_chunk(
    geometry: Any, channels: Any, model: Any, context: Any, base: Any, rest: Any, outs: Any
) -> Any:
    """See ``decode_kernel.decode_chunk``."""
    layout, first_pair, first_row = geometry
    (lanes, escaped), tables = base, model[3]
    exact_out, base_out = outs
    _, num_tokens, head_dim = exact_out.shape if exact_out.size else base_out.shape
    bits = int.from_bytes(rest[1].astype("<u4").tobytes(), "little")
    num_escaped, position = 0, 0
    for c, channel in enumerate(_channels(channels)):
        if c % GROUP == 0:
            sums = _predict(c // GROUP, model, context, first_pair)
        predicted = _place(sums[c % GROUP], channel, num_tokens)
        symbols = _pop_channel(lanes, _coarse_tables(predicted, channel), tables)
        coarse = (predicted >> channel.drop) + symbols - ZERO
        rebuilt = _rebuild(predicted, coarse, channel.drop)
        items: dict[int, int] = {}
        for token in map(int, np.flatnonzero(symbols == ESCAPE)):
            items[token] = int(escaped[min(num_escaped, len(escaped) - 1)])
            rebuilt[token] = _bin_of(items[token], channel.step, layout)[0]
            coarse[token] = rebuilt[token] >> channel.drop
            num_escaped += 1
        _write_context(rebuilt, channel, context, first_row + c)
        at = (c // head_dim, slice(None), c % head_dim)
        if base_out.size:
            base_out[at] = [items.get(t, _middle(int(rebuilt[t]), channel.step, layout))
                            for t in range(num_tokens)]  # fmt: skip
        if exact_out.size:
            found = coarse
            if channel.drop:
                fine_which = _fine_tables(predicted, coarse, channel)
                found = (coarse << channel.drop) + _pop_channel(rest[0], fine_which, tables)
            for token in range(num_tokens):
                if token not in items:
                    seen = bits >> min(position, 32 * (len(rest[1]) - 2)) & 0xFFFFFFFF
                    items[token], width = _join(int(found[token]), seen, channel.step, layout)
                    position += width
            exact_out[at] = [items[token] for token in range(num_tokens)]
    return num_escaped, position


def _middle(rebuilt: int, step: int, layout: Any) -> int:
    """Return the middle item of a bin."""
    width = _join(rebuilt, 1, step, layout)[1]
    is_at_zero = rebuilt in (0, -1)
    return _join(rebuilt, 1 if is_at_zero else (1 << width) // 2, step, layout)[0]
