"""The format's family of tables: sixteen shapes that a channel's symbols may have.

A symbol is a sign (relative to the channel's) and a distance from the channel's top in
half-octaves, so one shape serves every scale. Fitted by clustering the channels of SmolLM2 and
Gemma 3 and of wide-mean synthetic ones; part of the format (``docs/format.md`` §6), so they never
change.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ESCAPE", "FREQUENCIES", "NUM_TABLES", "Coder", "coder"]

NUM_TABLES = 16
ESCAPE = 31  # in five bits: farther than 30 half-octaves below the top, or above it
ESCAPE_BITS = 16
COST_SCALE = 256  # prices are integers, whose sums depend on no order
_FAMILY = """
4 48 127 350 305 403 233 249 130 132 65 67 34 34 17 17 9 8 4 4 2 2 1 1 1 1 1 1 1 1 1 1
4 37 93 248 228 316 194 218 118 120 64 64 32 33 17 17 8 9 4 4 2 2 1 1 1 1 1 1 1 1 1 1
20 142 204 357 264 326 192 206 111 115 56 59 28 30 15 15 7 7 4 4 2 3 1 1 1 1 1 1 1 1 1 2
4 41 99 283 253 339 203 217 114 117 61 60 30 32 15 14 7 7 4 4 2 2 1 1 1 1 1 1 1 1 1 1
14 129 232 440 304 348 189 193 97 99 51 49 25 24 12 13 6 6 3 3 2 2 1 1 1 1 1 1 1 1 1 1
15 112 173 321 232 280 159 170 90 91 48 48 24 25 12 12 6 6 4 3 2 2 1 1 1 1 1 1 1 1 1 1
10 60 95 209 179 257 191 241 159 181 132 133 81 81 37 35 11 10 4 6 8 2 2 2 1 1 1 1 1 1 1 2
13 67 115 220 191 281 182 238 128 165 62 84 39 53 28 27 13 18 11 8 3 5 1 1 1 1 1 1 1 1 1 1
1 18 45 163 198 363 278 351 206 225 118 126 73 83 48 45 21 18 9 9 5 5 2 3 1 1 1 1 1 1 1 1
1 8 22 85 113 218 181 248 159 181 100 109 57 60 32 31 16 17 9 8 4 4 2 2 1 1 1 1 1 1 1 1
1 18 74 283 302 443 274 300 159 162 82 82 42 41 21 21 10 10 5 5 3 3 1 1 1 1 1 1 1 1 1 1
1 8 32 143 181 307 212 250 139 148 76 79 40 40 21 21 10 11 5 5 3 3 1 1 1 1 1 1 1 1 1 1
5 87 217 508 398 475 256 261 129 129 67 65 33 32 16 16 8 9 4 4 2 2 1 1 1 1 1 1 1 1 1 1
1 14 40 137 151 234 155 181 100 107 56 59 30 30 15 15 8 8 4 4 2 2 1 1 1 1 1 1 1 1 1 1
28 223 335 559 358 386 202 198 100 99 48 49 24 24 12 12 6 6 3 3 1 2 1 1 1 1 1 1 1 1 1 2
5 46 91 212 174 232 138 153 82 86 43 45 22 23 12 12 6 6 3 3 2 1 1 1 1 1 1 1 1 1 1 1
38 329 471 710 411 419 201 196 94 90 45 43 22 22 11 11 5 5 3 3 1 1 1 1 1 1 1 1 1 1 1 2
2 15 38 107 106 158 103 121 67 72 37 39 21 20 10 10 5 6 2 3 1 1 1 1 1 1 1 1 1 1 1 1
1 35 157 552 509 627 335 331 161 156 75 74 35 35 18 17 8 8 4 4 2 2 1 1 1 1 1 1 1 1 1 1
1 2 7 38 61 133 110 147 90 101 56 59 32 32 15 17 8 8 5 4 2 2 1 1 1 1 1 1 1 1 1 1
7 152 403 881 589 594 273 245 112 104 49 47 24 22 11 10 5 5 3 3 1 1 1 1 1 1 1 1 1 1 1 1
1 2 5 26 37 74 61 82 50 57 33 35 18 19 9 9 5 5 2 3 1 1 1 1 1 1 1 1 1 1 1 1
132 3040 562 46 3 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 255 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
66 607 804 1013 463 385 157 133 58 52 24 24 11 10 5 5 2 3 1 1 1 1 1 1 1 1 1 1 1 1 1 3
1 1 3 14 17 32 27 36 23 27 16 17 9 9 4 4 2 2 1 1 1 1 1 1 1 1 1 1 1 1 1 1
62 1071 1452 943 248 147 46 32 12 10 5 4 2 2 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 1 1 1 1 3 2 3 2 3 1 2 2 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 157 1819 1807 184 55 10 6 2 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 102 555 1527 815 562 180 125 46 38 16 14 7 6 3 3 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
1 1 1 1 1 4 5 9 7 9 6 7 4 4 2 2 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
"""
# [table, symbol]: how many of 4096 states mean the symbol; sign + in 0-31, sign - in 32-63.
FREQUENCIES: npt.NDArray[np.int64] = np.array(_FAMILY.split(), np.int64).reshape(NUM_TABLES, 64)


class Coder(NamedTuple):
    """The family as the kernels look things up in it.

    Parameters
    ----------
    slots : uint32 [16 * 4096]
        By state: frequency (12 bits), distance from the symbol's first state (12), symbol (8).
    ranges : uint64 [16 * 64]
        By symbol: 2**20 times the frequency (32 bits), 4096 less the frequency (16), first state
        (16).
    reciprocals : uint64 [16 * 64]
        By symbol: 2**44 through the frequency, rounded up. For a state *x* below 2**20 times the
        frequency, as it is when the symbol is coded, 2**-44 times the product of both is the
        quotient, exactly, and the product has 64 bits: the rounding adds less than 2**-12 of it.
    costs : float32 [80 * 32]
        By sign (40 each) and 3 + distance below the top as it was, and by 16 * octaves that the top
        is raised by (0 or 1; to lower it never paid) + table: bits times 256, of an escape too.
    """

    slots: npt.NDArray[np.uint32]
    ranges: npt.NDArray[np.uint64]
    reciprocals: npt.NDArray[np.uint64]
    costs: npt.NDArray[np.float32]


@cache
def coder() -> Coder:
    """Return the family's look-up tables, made once."""
    first = np.cumsum(FREQUENCIES, axis=1) - FREQUENCIES
    symbols = np.concatenate([np.repeat(np.arange(64), row) for row in FREQUENCIES])
    tables = np.repeat(np.arange(NUM_TABLES), 4096)
    distance = np.tile(np.arange(4096), NUM_TABLES) - first[tables, symbols]
    slots = FREQUENCIES[tables, symbols] << 20 | distance << 8 | symbols
    ranges = (FREQUENCIES << 52 | 4096 - FREQUENCIES << 16 | first).astype(np.uint64)
    reciprocals = (-(-(1 << 44) // FREQUENCIES)).astype(np.uint64)
    return Coder(slots.astype(np.uint32), ranges.ravel(), reciprocals.ravel(), _costs())


def _costs() -> npt.NDArray[np.float32]:
    bits = (12 - np.log2(FREQUENCIES)).reshape(NUM_TABLES, 2, 32)
    padded = np.repeat(bits[:, :, ESCAPE:] + ESCAPE_BITS, 3 + 40 + 2, axis=2)
    padded[:, :, 3 : 3 + ESCAPE] = bits[:, :, :ESCAPE]
    raised = np.stack([padded[:, :, 2 * up : 2 * up + 40] for up in range(2)])
    costs: npt.NDArray[np.float32] = np.rint(COST_SCALE * raised).astype(np.float32)
    return np.ascontiguousarray(costs.reshape(2 * NUM_TABLES, 80).T).ravel()
