"""What closed-loop coding of a sample gives: counts of symbols, and tables from counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.types import BitArray

from .body import Place, new_context, symbols_of
from .pack import SETTINGS
from .prepared import Prepared
from .shapes import (
    ESCAPE,
    NUM_COARSE,
    NUM_FINE,
    ZERO,
    coarse_table,
    coarse_table_of,
    fine_table,
    fine_table_of,
)
from .values import coded_half

__all__ = ["Histograms", "gather", "tables_of"]

_PRIOR_COUNT = 16.0  # what a smooth shape weighs beside the counts
_BLOCK_TOKENS = 256


class Histograms(NamedTuple):
    """Counts by setting, layer, side and channel.

    Parameters
    ----------
    coarse : int64 [S, L, 2, C, 8, 64]
        By place in the coarse bin, and symbol.
    fine : int64 [S, L, 2, C, 16, 8]
        By distance from the coarse bin, and symbol.
    """

    coarse: npt.NDArray[np.int64]
    fine: npt.NDArray[np.int64]


def gather(
    prepared: Prepared,
    samples: Sequence[tuple[BitArray, BitArray]],
    max_tokens: int,
    progress: Callable[[float], None],
) -> Histograms:
    """Code blocks spread over the sample with the pack's maps, in every setting, and count."""
    shape = prepared.pack.shape
    each = (len(SETTINGS), shape.layers, 2, shape.channels)
    counts = Histograms(np.zeros((*each, 8, 64), np.int64), np.zeros((*each, 16, 8), np.int64))
    blocks = [
        (pair, slice(start, start + _BLOCK_TOKENS))
        for pair in samples
        for start in range(0, pair[0].shape[2], _BLOCK_TOKENS)
    ]
    tokens = sum(min(_BLOCK_TOKENS, pair[0].shape[2] - part.start) for pair, part in blocks)
    chosen = blocks[:: max(tokens // max_tokens, 1)]
    for done, (pair, part) in enumerate(chosen):
        for setting in range(len(SETTINGS)):
            _count(prepared, pair, part, setting, counts)
        progress((done + 1) / len(chosen))
    return counts


def _count(
    prepared: Prepared,
    pair: tuple[BitArray, BitArray],
    part: slice,
    setting: int,
    counts: Histograms,
) -> None:
    shape, kv_dtype = prepared.pack.shape, prepared.pack.kv_dtype
    context = new_context(prepared, len(range(pair[0].shape[2])[part]))
    for layer, side in itertools.product(range(shape.layers), range(2)):
        chunk = coded_half(pair[side][layer, :, part], kv_dtype)
        found = symbols_of(chunk, prepared, Place(layer, side, setting), context)
        drops = prepared.pack.drops[setting, layer, side].astype(np.int64)
        at = (setting, layer, side)
        first = coarse_table_of(drops)
        counts.coarse[at] += _tally(found.which, first, found.symbols, (8, 64))
        if drops.any():
            some = drops > 0
            first = NUM_COARSE * len(prepared.pack.coarse) + fine_table_of(drops[some])
            fine = _tally(found.fine_which[some], first, found.fine_symbols[some], (16, 8))
            counts.fine[at][some] += fine


def _tally(
    which: npt.NDArray[np.uint64],
    first: npt.NDArray[np.int64],
    symbols: npt.NDArray[np.uint8],
    size: tuple[int, int],
) -> npt.NDArray[np.int64]:
    """Count symbols [C, T] by channel, table from the channel's ``first`` on, and symbol."""
    place = which.astype(np.int64) - first[:, None]
    channel = np.arange(len(which))[:, None]
    index = (channel * size[0] + place) * size[1] + symbols
    counted = np.bincount(index.ravel(), minlength=len(which) * size[0] * size[1])
    return counted.reshape(len(which), *size)


def tables_of(
    counts: Histograms, drops: npt.NDArray[np.uint8], num_classes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """Return every channel's class by setting, and the tables of all classes."""
    spread = _spreads(counts.coarse.sum(axis=-2), drops)
    edges = np.quantile(spread, np.linspace(0, 1, num_classes + 1)[1:-1])
    classes = np.searchsorted(edges, spread).astype(np.uint8)
    middles = [float(np.median(spread[classes == c])) if (classes == c).any() else 0.0
               for c in range(num_classes)]  # fmt: skip
    coarse = np.empty((num_classes, NUM_COARSE, 64), np.uint16)
    fine = np.zeros((num_classes, NUM_FINE, 8), np.uint16)
    for which, drop in itertools.product(range(num_classes), range(4)):
        mine = (classes == which) & (drops == drop)
        coarse_counts = counts.coarse[mine].sum(axis=0)
        for place in range(1 << drop):
            prior = _prior(2.0 ** middles[which], drop, place)
            coarse[which, coarse_table(drop) + place] = _frequencies(coarse_counts[place] + prior)
        fine_counts = counts.fine[mine].sum(axis=0)
        for place in range((1 << drop) + 8 if drop else 0):
            smooth = fine_counts[place, : 1 << drop] + _PRIOR_COUNT / (1 << drop)
            fine[which, fine_table(drop) + place, : 1 << drop] = _frequencies(smooth)
    return classes, coarse, fine


def _spreads(counts: npt.NDArray[np.int64], drops: npt.NDArray[np.uint8]) -> Any:
    """Return the binary logarithm of residuals' deviation, in bins; escapes do not count."""
    kept = counts[..., :ESCAPE]
    total = np.maximum(kept.sum(axis=-1), 1)
    residual = np.arange(ESCAPE) - ZERO
    mean = (kept * residual).sum(axis=-1) / total
    square = (kept * residual**2).sum(axis=-1) / total
    return 0.5 * np.log2(np.maximum(square - mean**2, 1 / 24)) + drops


def _prior(spread: float, drop: int, place: int) -> npt.NDArray[np.float64]:
    """Return a smooth shape, Laplace's, around where the prediction lies in its coarse bin."""
    width = 1 << drop
    distance = np.abs((np.arange(64) - ZERO) * width + (width - 1) / 2 - place)
    shape = np.exp(-1.4 * distance / max(spread, 0.3))
    shape[ESCAPE] = 1e-3
    return np.asarray(_PRIOR_COUNT * shape / shape.sum())


def _frequencies(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return integers that sum to 4096, 1 at least, close to the weights."""
    room = 4096 - len(weights)
    exact = weights / weights.sum() * room
    whole: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: room - int(whole.sum())]] += 1
    whole += 1
    return whole
