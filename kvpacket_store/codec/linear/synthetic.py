"""Made-up packs and items, the same at each call: for tests, without a model or training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kvpacket_store.types import BitArray, KVDtype

from .pack import SETTINGS, CodecPack
from .shapes import NUM_COARSE, NUM_FINE, ZERO, PackShape

__all__ = ["make_items", "make_pack", "make_wild_pack"]

_BIASES = {"bf16": 127, "fp16": 15, "fp32": 127, "fp8_e4m3": 7, "fp8_e5m2": 15}
_NUM_CLASSES = 2


def make_pack(shape: PackShape, kv_dtype: KVDtype | str = "bf16", seed: int = 0) -> CodecPack:
    """Return a pack of random numbers, whose predictions are about as large as bins are.

    Examples
    --------
    >>> make_pack(PackShape(2, 1, 5, 1)).digest == make_pack(PackShape(2, 1, 5, 1)).digest
    True
    """
    rng, kv_dtype = np.random.default_rng(seed), KVDtype(kv_dtype)
    each = (shape.layers, 2, shape.channels)
    drops = rng.integers(0, 4, (len(SETTINGS), *each), dtype=np.uint8)
    drops[0] = 0
    return CodecPack(
        shape, kv_dtype, "", {"seed": seed},
        steps=(_BIASES[kv_dtype.value] - rng.integers(1, 4, each)).astype(np.uint8),
        centers=rng.integers(-9, 10, each, dtype=np.int16),
        shifts=rng.integers(0, 3, each, dtype=np.uint8),
        bases=rng.integers(-900, 900, each, dtype=np.int32),
        multipliers=rng.integers(1, 1 << 15, each, dtype=np.uint16),
        downs=rng.integers(26, 29, each, dtype=np.uint8),
        drops=drops,
        classes=rng.integers(0, _NUM_CLASSES, drops.shape, dtype=np.uint8),
        coarse=_coarse(rng),
        fine=_fine(rng),
        matrices=rng.integers(-127, 128, shape.num_weights, dtype=np.int8),
    )  # fmt: skip


def make_wild_pack(shape: PackShape, kv_dtype: KVDtype | str = "bf16", seed: int = 0) -> CodecPack:
    """Return a pack of any numbers that may be: it predicts nothing, and codes everything."""
    rng, pack = np.random.default_rng(seed), make_pack(shape, kv_dtype, seed)
    each = pack.steps.shape
    last_step = 2 * _BIASES[pack.kv_dtype.value]
    return replace(
        pack,
        steps=rng.integers(1, last_step, each, dtype=np.uint8, endpoint=True),
        centers=rng.integers(-4096, 4096, each, dtype=np.int16, endpoint=True),
        shifts=rng.integers(0, 12, each, dtype=np.uint8, endpoint=True),
        bases=rng.integers(1 - (1 << 30), 1 << 30, each, dtype=np.int32),
        multipliers=rng.integers(0, 65535, each, dtype=np.uint16, endpoint=True),
        downs=rng.integers(8, 40, each, dtype=np.uint8, endpoint=True),
        coarse=_any_tables(rng, (_NUM_CLASSES, NUM_COARSE), 64),
        fine=_any_fine(rng),
        matrices=rng.choice(np.array([-127, 0, 127], np.int8), shape.num_weights),
    )


def _any_tables(
    rng: np.random.Generator, size: tuple[int, int], num_symbols: int
) -> npt.NDArray[np.uint16]:
    """Return tables [*size, num_symbols] of which some give one symbol nearly everything."""
    weights = rng.random((*size, num_symbols)) ** rng.choice([1, 9, 99], (*size, 1))
    room = 4096 - num_symbols
    tables = 1 + np.floor(weights / weights.sum(axis=2, keepdims=True) * room)
    tables[..., 0] += 4096 - tables.sum(axis=2)
    return np.asarray(tables, np.uint16)


def _any_fine(rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    tables, at = np.zeros((_NUM_CLASSES, NUM_FINE, 8), np.uint16), 0
    for drop in (1, 2, 3):
        rows, symbols = (1 << drop) + 8, 1 << drop
        tables[:, at : at + rows, :symbols] = _any_tables(rng, (_NUM_CLASSES, rows), symbols)
        at += rows
    return tables


def _coarse(rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    scales = rng.uniform(3, 8, (_NUM_CLASSES, NUM_COARSE, 1))
    weights = np.exp(-np.abs(np.arange(64) - ZERO) / scales)
    tables = 1 + np.floor(weights / weights.sum(axis=2, keepdims=True) * (4096 - 64))
    tables[..., ZERO] += 4096 - tables.sum(axis=2)
    return np.asarray(tables, np.uint16)


def _fine(rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    tables, at = np.zeros((_NUM_CLASSES, NUM_FINE, 8), np.uint16), 0
    for drop in (1, 2, 3):
        rows, symbols = (1 << drop) + 8, 1 << drop
        counts = rng.integers(1, 4096 >> drop, (_NUM_CLASSES, rows, symbols))
        counts[..., 0] += 4096 - counts.sum(axis=2)
        tables[:, at : at + rows, :symbols] = counts
        at += rows
    return tables


def make_items(
    shape: tuple[int, ...], kv_dtype: KVDtype | str = "bf16", seed: int = 0, strange: float = 0.02
) -> BitArray:
    """Return bit patterns of normal values, a share of them ``strange``: any bits at all."""
    rng, kv_dtype = np.random.default_rng(seed), KVDtype(kv_dtype)
    items = _bits(rng.normal(size=shape).astype(np.float32), kv_dtype)
    any_bits = rng.integers(0, 1 << 8 * kv_dtype.itemsize_bytes, shape).astype(items.dtype)
    return np.where(rng.random(shape) < strange, any_bits, items)


def _bits(values: npt.NDArray[np.float32], kv_dtype: KVDtype) -> BitArray:
    single, half = values.view(np.uint32), values.astype(np.float16).view(np.uint16)
    if kv_dtype is KVDtype.FP8_E4M3:
        exponent = (single >> 23 & 255).astype(np.int64) - 120
        magnitude = np.where(exponent > 0, exponent << 3 | single >> 20 & 7, 1)
        return (single >> 24 & 128 | magnitude).astype(np.uint8)
    by_dtype: dict[KVDtype, BitArray] = {
        KVDtype.BF16: (single >> 16).astype(np.uint16),
        KVDtype.FP16: half,
        KVDtype.FP32: single,
        KVDtype.FP8_E5M2: (half >> 8).astype(np.uint8),
    }
    return by_dtype[kv_dtype]
