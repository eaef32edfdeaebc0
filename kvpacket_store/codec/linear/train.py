"""Fitting a codec pack to a sample of a model's K and V.

Floating point decides the numbers of a pack, never what they mean: once written, they are integers.
Three passes over the sample: how far the linear map predicts each channel (this sets the width of
its bins), the maps from bins to bins, and the symbols that closed-loop coding gives (the tables).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray, KVDtype

from .histograms import Histograms, gather, tables_of
from .pack import SETTINGS, CodecPack
from .prepared import Prepared
from .shapes import GROUP, NUM_COARSE, NUM_FINE, PackShape
from .values import bins_of, values_of

__all__ = ["Options", "train"]

Sample = tuple[BitArray, BitArray]
_Floats = npt.NDArray[np.float32]
_RIDGE = 0.002  # of a context row's variance: what a sample of 25,000 tokens cannot tell
_BINS_A_RESIDUAL = 2.5  # finer bins save under 0.01 bit, and escape sooner
_LARGEST_BIN = 2048  # ordinary values stay below half of the bins that there are
_CONTEXT_UNITS = 16  # context units a standard deviation; 127 is the end


class Options(NamedTuple):
    """What a pack is made for.

    Parameters
    ----------
    back : int
        Layers that a prediction looks back. 1 costs 0.3 bit for half of the work, 3 saves 0.06.
    num_classes : int
        Rows of tables.
    table_tokens : int
        How many tokens of the sample are coded to fit the tables.
    """

    back: int = 2
    num_classes: int = 16
    table_tokens: int = 8192


def train(
    samples: Sequence[Sample],
    kv_dtype: KVDtype | str,
    *,
    weights: str = "",
    about: Mapping[str, Any] | None = None,
    options: Options | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> CodecPack:
    """Return a pack fitted to packets' K and V.

    Parameters
    ----------
    samples : sequence of (k, v)
        Bit patterns [L, H, T, D] of each packet; 25,000 tokens are enough for 400 channels a layer.
    kv_dtype : KVDtype or str
        Of all samples.
    weights : str
        SHA-256 of the model's weights: the pack is chosen by it.
    about : mapping, optional
        Provenance, kept in the pack.
    options : Options, optional
        Layers that a prediction looks back, and the like.
    progress : callable
        Told the share that is done.

    Raises
    ------
    UsageError
        No sample, or too few tokens to fit anything.
    """
    options, kv_dtype = options or Options(), KVDtype(kv_dtype)
    if sum(k.shape[2] for k, _ in samples) < 64:
        raise UsageError("a codec pack needs 64 tokens of K and V at least; pass more packets")
    first = samples[0][0]
    shape = PackShape(first.shape[0], first.shape[1], first.shape[3], options.back)
    layers = [_layer_items(samples, layer) for layer in range(shape.layers)]
    scales = _find_scales(layers, shape, kv_dtype, lambda share: progress(0.3 * share))
    pack = _blank(shape, kv_dtype, weights, dict(about or {}), scales)
    pack = _fit_maps(pack, layers, options, lambda share: progress(0.3 + 0.4 * share))
    histograms = gather(
        Prepared(pack), samples, options.table_tokens, lambda share: progress(0.7 + 0.3 * share)
    )
    return _with_tables(pack, histograms, options.num_classes)


class _Scales(NamedTuple):
    """Of every channel [L, 2, C]: exponent of the step, drops by setting, context shift, center."""

    steps: npt.NDArray[np.int64]
    drops: npt.NDArray[np.int64]
    shifts: npt.NDArray[np.int64]


def _layer_items(samples: Sequence[Sample], layer: int) -> BitArray:
    """Return a layer's items [N, 2 * C]: K's channels, then V's."""
    sides = [
        np.concatenate([pair[side][layer].transpose(1, 0, 2) for pair in samples])
        for side in range(2)
    ]
    return np.concatenate([side.reshape(len(side), -1) for side in sides], axis=1)


def _normal(items: BitArray, kv_dtype: KVDtype) -> tuple[_Floats, _Floats, _Floats]:
    """Return values less their median over their spread, clipped, and both."""
    values = values_of(items, kv_dtype)
    middle = np.median(values, axis=0)
    spread = np.median(np.abs(values - middle), axis=0) * 1.4826
    spread = np.clip(values - middle, -6 * spread, 6 * spread).std(axis=0) + 1e-20
    return np.clip((values - middle) / spread, -6, 6).astype(np.float32), middle, spread


def _find_scales(
    layers: list[BitArray], shape: PackShape, kv_dtype: KVDtype, progress: Callable[[float], None]
) -> _Scales:
    """Find how far each channel is predicted, and from that how wide its bins are."""
    size = (shape.layers, 2 * shape.channels)
    spreads, residuals, largest = np.empty(size), np.empty(size), np.empty(size)
    window: list[_Floats] = []
    for layer, items in enumerate(layers):
        values, _, spreads[layer] = _normal(items, kv_dtype)
        window = [*window[-shape.back :], values] if shape.back else [values]
        together = np.concatenate(window, axis=1)
        gram = _ridged((together.T @ together).astype(np.float64) / len(together))
        factor = np.linalg.cholesky(gram)[-size[1] :, -size[1] :]
        residuals[layer] = _group_residuals(factor, shape) * spreads[layer]
        largest[layer] = np.quantile(np.abs(values_of(items, kv_dtype)), 0.999, axis=0)
        progress((layer + 1) / shape.layers)
    bias = {"fp16": 15, "fp8_e4m3": 7, "fp8_e5m2": 15}.get(kv_dtype.value, 127)
    finest = np.maximum(residuals / _BINS_A_RESIDUAL, largest / _LARGEST_BIN)
    steps = np.clip(np.rint(np.log2(finest)) + bias, 1, 2 * bias)
    coarse = np.stack([np.log2(spreads / div) + bias - steps for div in (1e9, 8, 4, 2)])
    coarse[0] = 0
    drops = np.clip(np.rint(coarse), 0, 3)
    shifts = np.clip(np.rint(np.log2(spreads / _CONTEXT_UNITS) + bias - steps), 0, 12)
    by_side = (shape.layers, 2, shape.channels)
    steps, shifts = steps.reshape(by_side).astype(int), shifts.reshape(by_side).astype(int)
    return _Scales(steps, drops.reshape(-1, *by_side).astype(int), shifts)


def _ridged(gram: Any) -> Any:
    diagonal = np.diagonal(gram)
    return gram + np.diag(_RIDGE * diagonal + 1e-6 * (diagonal.mean() + 1e-20))


def _group_residuals(factor: Any, shape: PackShape) -> Any:
    """Return residual deviations of channels given all groups before their own."""
    channels = shape.channels
    group = (
        np.arange(2 * channels) % channels // GROUP + np.arange(2 * channels) // channels * 65536
    )
    inside = group[:, None] == group[None, :]
    return np.sqrt(np.sum(np.where(inside, factor, 0) ** 2, axis=1))


def _blank(
    shape: PackShape, kv_dtype: KVDtype, weights: str, about: dict[str, Any], scales: _Scales
) -> CodecPack:
    each = scales.steps.shape
    return CodecPack(
        shape, kv_dtype, weights, about,
        steps=scales.steps.astype(np.uint8),
        centers=np.zeros(each, np.int16),
        shifts=scales.shifts.astype(np.uint8),
        bases=np.zeros(each, np.int32),
        multipliers=np.full(each, 1 << 14, np.uint16),
        downs=np.full(each, 20, np.uint8),
        drops=scales.drops.astype(np.uint8),
        classes=np.zeros((len(SETTINGS), *each), np.uint8),
        coarse=np.full((1, NUM_COARSE, 64), 64, np.uint16),
        fine=_even_fine(1),
        matrices=np.zeros(shape.num_weights, np.int8),
    )  # fmt: skip


def _even_fine(num_classes: int) -> npt.NDArray[np.uint16]:
    fine = np.zeros((num_classes, NUM_FINE, 8), np.uint16)
    at = 0
    for drop in (1, 2, 3):
        count = (1 << drop) + 8
        fine[:, at : at + count, : 1 << drop] = 4096 >> drop
        at += count
    return fine


def _fit_maps(
    pack: CodecPack, layers: list[BitArray], options: Options, progress: Callable[[float], None]
) -> CodecPack:
    shape, matrices = pack.shape, []
    centers, bases = pack.centers.copy(), pack.bases.copy()
    multipliers, downs = pack.multipliers.copy(), pack.downs.copy()
    window: list[_Floats] = []
    for layer, items in enumerate(layers):
        found = bins_of(items, pack.steps[layer].ravel(), pack.kv_dtype)
        middle = np.median(found, axis=0).astype(np.int64)
        centers[layer] = np.clip(middle, -4096, 4095).reshape(2, -1)
        context = _padded(_contexts(found, pack, centers, layer), shape)
        window = [*window[-shape.back :], context] if shape.back else [context]
        together = np.concatenate(window, axis=1)
        limit = 8 * (found - middle).clip(-4096, 4096).std(axis=0) + 1
        target = np.clip(found - middle, -limit, limit).astype(np.float32)
        maps = _solve(together, target, shape)
        for side in range(2):
            part = slice(side * shape.channels, (side + 1) * shape.channels)
            fitted = _quantised(maps[side], together.mean(axis=0), target.mean(axis=0)[part])
            matrices += fitted.matrices
            multipliers[layer, side], downs[layer, side] = fitted.multipliers, fitted.downs
            bases[layer, side] = np.rint(256 * (fitted.bases + centers[layer, side]))
        progress((layer + 1) / shape.layers)
    return replace(
        pack, centers=centers, bases=bases, multipliers=multipliers, downs=downs,
        matrices=np.concatenate(matrices),
    )  # fmt: skip


def _contexts(found: npt.NDArray[np.int64], pack: CodecPack, centers: Any, layer: int) -> _Floats:
    """Return context units [N, 2 * C] of the exact bins, whatever the base step will be."""
    shift = pack.shifts[layer].ravel().astype(np.int64)
    units = (found - centers[layer].ravel() + ((1 << shift) >> 1)) >> shift
    clipped: _Floats = np.clip(units, -127, 127).astype(np.float32)
    return clipped


def _padded(context: _Floats, shape: PackShape) -> _Floats:
    sides = context.reshape(len(context), 2, shape.channels)
    padding = ((0, 0), (0, 0), (0, shape.padded - shape.channels))
    return np.pad(sides, padding).reshape(len(context), -1)


def _solve(context: _Floats, target: _Floats, shape: PackShape) -> list[list[Any]]:
    """Return, by side and group, the map [16, rows] from all context before the group."""
    mean = context.mean(axis=0)
    centered = context - mean
    gram = _ridged((centered.T @ centered).astype(np.float64) / len(context))
    cross = (centered.T @ (target - target.mean(axis=0))).astype(np.float64) / len(context)
    inverse = np.linalg.inv(np.linalg.cholesky(gram))  # its prefixes are the prefixes' inverses
    forward = inverse @ cross
    before = context.shape[1] - 2 * shape.padded
    maps: list[list[Any]] = [[], []]
    for side in range(2):
        for group in range(shape.groups):
            rows = before + side * shape.padded + group * GROUP
            first = side * shape.channels + group * GROUP
            last = min(first + GROUP, (side + 1) * shape.channels)
            maps[side].append((inverse[:rows, :rows].T @ forward[:rows, first:last]).T)
    return maps


class _Fitted(NamedTuple):
    matrices: list[npt.NDArray[np.int8]]
    multipliers: npt.NDArray[np.int64]
    downs: npt.NDArray[np.int64]
    bases: npt.NDArray[np.float64]


def _quantised(maps: list[Any], context_mean: _Floats, target_mean: _Floats) -> _Fitted:
    """Round maps to 8 bits a weight, and each row's scale to 15 bits and a shift."""
    matrices, scales, bases = [], [], []
    for weights in maps:
        scale = np.maximum(np.abs(weights).max(axis=1, initial=0), 1e-9) / 127
        down = np.clip(14 - np.floor(np.log2(scale)), 8, 40)
        multiplier = np.clip(np.rint(scale * 2.0**down), 1, (1 << 16) - 1)
        exact = multiplier / 2.0**down
        rounded = np.clip(np.rint(weights / exact[:, None]), -127, 127)
        bases.append(-(rounded @ context_mean[: weights.shape[1]]) * exact)
        scales.append(np.stack([multiplier, down]))
        full = np.zeros((GROUP, weights.shape[1]), np.int8)
        full[: len(rounded)] = rounded
        matrices.append(full.ravel())
    multipliers, downs = np.concatenate(scales, axis=1).astype(np.int64)
    return _Fitted(matrices, multipliers, downs, np.concatenate(bases) + target_mean)


def _with_tables(pack: CodecPack, histograms: Histograms, num_classes: int) -> CodecPack:
    classes, coarse, fine = tables_of(histograms, pack.drops, num_classes)
    return replace(pack, classes=classes, coarse=coarse, fine=fine)
