"""Interleaved rANS over the tokens of a channel: lane = token mod 32, any table for any token.

Inlined into the kernels that decode and encode a chunk (``docs/format.md`` §7). Indices are
unsigned: numba tests signed ones for wrap-around, which cost 6.0 ns a symbol instead of 2.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvpacket_store.codec.compiled import inlined

__all__ = ["LANES", "pop_channel", "push_channel"]

LANES = 32
_1, _2, _3, _4 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@inlined
def _pop(state: Any, place: Any, words: Any, which: Any, tables: Any) -> Any:
    """Decode one symbol: the next state, the next word's place, the symbol."""
    cumulative, firsts = tables
    slot, row = state & np.uint64(4095), which * np.uint64(66)
    at = row + np.uint64(firsts[(which << np.uint64(6)) + (slot >> np.uint64(6))])
    at += np.uint64(slot >= np.uint64(cumulative[at + _1]))
    at += np.uint64(slot >= np.uint64(cumulative[at + _1]))
    while slot >= np.uint64(cumulative[at + _1]):
        at += _1
    low = np.uint64(cumulative[at])
    state = (np.uint64(cumulative[at + _1]) - low) * (state >> np.uint64(12)) + slot - low
    more = state < np.uint64(65536)
    filled = (state << np.uint64(16)) | np.uint64(words[place])
    return (filled if more else state), place + np.uint64(more), np.uint8(at - row)


@inlined
def _pop_four(lanes: Any, first: Any, which: Any, tables: Any, symbols: Any) -> Any:
    """Decode the steps that four neighbouring lanes all have; return the token they end at.

    Their states stay in registers: one waits while others work.
    """
    states, places, words = lanes
    step, end, token = np.uint64(len(states)), np.uint64(len(symbols)), first
    x0, x1, x2, x3 = states[first], states[first + _1], states[first + _2], states[first + _3]
    p0, p1, p2, p3 = places[first], places[first + _1], places[first + _2], places[first + _3]
    while token + _3 < end:
        x0, p0, symbols[token] = _pop(x0, p0, words, which[token], tables)
        x1, p1, symbols[token + _1] = _pop(x1, p1, words, which[token + _1], tables)
        x2, p2, symbols[token + _2] = _pop(x2, p2, words, which[token + _2], tables)
        x3, p3, symbols[token + _3] = _pop(x3, p3, words, which[token + _3], tables)
        token += step
    states[first], states[first + _1], states[first + _2], states[first + _3] = x0, x1, x2, x3
    places[first], places[first + _1], places[first + _2], places[first + _3] = p0, p1, p2, p3
    return token


@inlined
def pop_channel(lanes: Any, which: Any, tables: Any, symbols: Any) -> None:
    """Decode a channel's symbols uint8 [T], each with the table ``which`` [T].

    ``tables``: sums of frequencies before each symbol uint16 [n, 66], flat, which end with 4096
    and 65535, and the symbol that every 64th slot means uint8 [n, 64], flat. (Slots looked up one
    by one take 16 kB a table: 60 ns a symbol where a channel has eight, against 5 for the search.)

    ``lanes``: states uint64 [N], places uint64 [N] of their next words, words uint16.
    """
    states, places, words = lanes
    num_lanes, end, first = np.uint64(len(states)), np.uint64(len(symbols)), np.uint64(0)
    while first < num_lanes:
        token = first
        if first + _4 <= num_lanes:
            token = _pop_four(lanes, first, which, tables, symbols)
        for k in range(4):
            lane, t = first + np.uint64(k), token + np.uint64(k)
            while lane < num_lanes and t < end:
                states[lane], places[lane], symbols[t] = _pop(
                    states[lane], places[lane], words, which[t], tables
                )
                t += num_lanes
        first += _4


@inlined
def push_channel(lanes: Any, which: Any, cumulative: Any, symbols: Any) -> None:
    """Encode a channel's symbols, last token first; words grow downwards from ``places``."""
    states, places, words = lanes
    num_lanes = np.uint64(len(states))
    t = np.uint64(len(symbols))
    lane = t % num_lanes
    while t > 0:
        t -= _1
        lane = (lane if lane > 0 else num_lanes) - _1
        at = which[t] * np.uint64(66) + np.uint64(symbols[t])
        low = np.uint64(cumulative[at])
        frequency, state = np.uint64(cumulative[at + _1]) - low, states[lane]
        if state >= frequency << np.uint64(20):
            places[lane] -= _1
            words[places[lane]] = np.uint16(state & np.uint64(65535))
            state >>= np.uint64(16)
        states[lane] = (state // frequency << np.uint64(12)) + state % frequency + low
