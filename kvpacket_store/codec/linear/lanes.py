"""Interleaved rANS over the tokens of a channel: lane = token mod 32, any table for any token.

Inlined into the kernels that decode and encode a chunk (``docs/format.md`` §7).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvpacket_store.codec.compiled import inlined

__all__ = ["LANES", "pop_channel", "push_channel"]

LANES = 32


@inlined
def _pop(state: Any, place: Any, words: Any, which: Any, slots: Any) -> Any:
    """Decode one symbol: the next state, the next word's place, the symbol."""
    entry = np.uint64(slots[which | (state & np.uint64(4095))])
    state = (entry >> np.uint64(20)) * (state >> np.uint64(12)) + (
        (entry >> np.uint64(8)) & np.uint64(4095)
    )
    more = state < np.uint64(65536)
    filled = (state << np.uint64(16)) | np.uint64(words[place])
    return (filled if more else state), place + np.uint64(more), np.uint8(entry)


@inlined
def _pop_four(lanes: Any, first: int, step: int, which: Any, slots: Any, symbols: Any) -> int:
    """Decode the steps that four neighbouring lanes all have; return the token they end at."""
    states, places, words = lanes
    x0, x1, x2, x3 = states[first], states[first + 1], states[first + 2], states[first + 3]
    p0, p1, p2, p3 = places[first], places[first + 1], places[first + 2], places[first + 3]
    token = first
    for _ in range((len(symbols) - first - 4 + step) // step):
        at, w = symbols[token : token + 4], which[token : token + 4]
        x0, p0, at[0] = _pop(x0, p0, words, w[0], slots)
        x1, p1, at[1] = _pop(x1, p1, words, w[1], slots)
        x2, p2, at[2] = _pop(x2, p2, words, w[2], slots)
        x3, p3, at[3] = _pop(x3, p3, words, w[3], slots)
        token += step
    states[first], states[first + 1], states[first + 2], states[first + 3] = x0, x1, x2, x3
    places[first], places[first + 1], places[first + 2], places[first + 3] = p0, p1, p2, p3
    return token


@inlined
def pop_channel(lanes: Any, which: Any, slots: Any, symbols: Any) -> None:
    """Decode a channel's symbols uint8 [T], each with the table that begins at ``which`` [T].

    ``lanes``: states uint64 [N], places uint64 [N] of their next words, words uint16.
    """
    states, places, words = lanes
    num_lanes = len(states)
    for first in range(0, num_lanes, 4):
        token = first
        if first + 4 <= num_lanes:
            token = _pop_four(lanes, first, num_lanes, which, slots, symbols)
        for lane in range(first, min(first + 4, num_lanes)):
            for t in range(token + lane - first, len(symbols), num_lanes):
                states[lane], places[lane], symbols[t] = _pop(
                    states[lane], places[lane], words, which[t], slots
                )


@inlined
def push_channel(lanes: Any, which: Any, ranges: Any, symbols: Any) -> None:
    """Encode a channel's symbols, last token first; words grow downwards from ``places``."""
    states, places, words = lanes
    num_lanes = np.uint64(len(states))
    for back in range(len(symbols)):
        t = np.uint64(len(symbols) - 1 - back)
        lane = t % num_lanes
        entry = ranges[(np.uint64(which[t]) >> np.uint64(6)) + np.uint64(symbols[t])]
        state, frequency = states[lane], entry >> np.uint64(12) & np.uint64(4095)
        if state >= frequency << np.uint64(20):
            places[lane] -= np.uint64(1)
            words[places[lane]] = np.uint16(state & np.uint64(65535))
            state >>= np.uint64(16)
        quotient = (state * (entry >> np.uint64(24))) >> np.uint64(32)
        rest = state - quotient * frequency
        if rest >= frequency:  # the reciprocal is rounded down: one too few at most
            quotient += np.uint64(1)
            rest -= frequency
        first = entry & np.uint64(4095)
        states[lane] = (quotient << np.uint64(12)) + rest + first
