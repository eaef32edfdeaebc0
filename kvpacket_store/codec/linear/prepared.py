"""A codec pack as the kernels look things up in it, made once a pack and process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .items import ItemLayout, sizes_of
from .pack import CodecPack
from .shapes import GROUP, NUM_COARSE, NUM_FINE, coarse_table_of, fine_table_of

__all__ = ["Prepared", "prepare"]

_EXPONENT_BITS = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}
_MAX_KEPT = 4
_kept: OrderedDict[str, Prepared] = OrderedDict()
_lock = threading.Lock()


class Prepared:
    """Tables expanded, matrices widened, channels by layer and side."""

    def __init__(self, pack: CodecPack) -> None:
        self.pack = pack
        shape = pack.shape
        item_bits = min(8 * pack.kv_dtype.itemsize_bytes, 16)  # of fp32 the upper half is coded
        exponent_bits = _EXPONENT_BITS[pack.kv_dtype.value]
        mantissa_bits = item_bits - exponent_bits - 1
        self.layout = ItemLayout(mantissa_bits, (1 << exponent_bits) - 1, item_bits - 1)
        self.sizes = sizes_of(mantissa_bits)
        self.matrices = pack.matrices.astype(np.int16)
        frequencies = np.zeros((len(pack.coarse) * (NUM_COARSE + NUM_FINE), 64), np.int64)
        frequencies[: len(pack.coarse) * NUM_COARSE] = pack.coarse.reshape(-1, 64)
        frequencies[len(pack.coarse) * NUM_COARSE :, :8] = pack.fine.reshape(-1, 8)
        self.frequencies = frequencies
        strides = [
            [shape.rows(layer, side) + GROUP * np.arange(shape.groups) for side in range(2)]
            for layer in range(shape.layers)
        ]
        self.strides: npt.NDArray[np.int64] = np.array(strides, np.int64)
        ends = np.cumsum(GROUP * self.strides.ravel())
        self.starts = (ends - GROUP * self.strides.ravel()).reshape(self.strides.shape)

    @cached_property
    def slots(self) -> npt.NDArray[np.uint32]:
        """By state: frequency (12 bits), distance from the symbol's first state (12), symbol (8)."""
        first = np.cumsum(self.frequencies, axis=1) - self.frequencies
        count = self.frequencies.ravel()
        packed = (self.frequencies << 20 | np.arange(64)).ravel()
        slots = np.repeat(packed, count)
        inside = np.tile(np.arange(4096), len(self.frequencies)) - np.repeat(first.ravel(), count)
        return (slots | inside << 8).astype(np.uint32)

    @cached_property
    def ranges(self) -> npt.NDArray[np.uint64]:
        """By symbol: reciprocal of the frequency (32 bits above), frequency (12), first state (12)."""
        first = np.cumsum(self.frequencies, axis=1) - self.frequencies
        reciprocals = ((1 << 32) - 1) // np.maximum(self.frequencies, 1)
        ranges = reciprocals << 24 | self.frequencies << 12 | (first & 4095)
        return ranges.astype(np.uint64).ravel()

    def channels(self, setting: int, layer: int, side: int) -> tuple[Any, ...]:
        """Return the arrays int32 [C] that the kernels take of one chunk's channels."""
        pack, at = self.pack, (layer, side)
        drops = pack.drops[setting][at].astype(np.int32)
        classes = pack.classes[setting][at].astype(np.int32)
        coarse = classes * NUM_COARSE + coarse_table_of(drops)
        fine = len(pack.coarse) * NUM_COARSE + classes * NUM_FINE + fine_table_of(drops)
        arrays = (pack.steps, pack.centers, pack.shifts, pack.bases, pack.multipliers, pack.downs)
        columns = [*(array[at] for array in arrays), drops, coarse, fine]
        return tuple(np.ascontiguousarray(column, np.int32) for column in columns)

    def model(self, layer: int, side: int) -> tuple[Any, ...]:
        """Return matrices, starts and strides of one chunk's groups."""
        return self.matrices, self.starts[layer, side], self.strides[layer, side]


def prepare(pack: CodecPack) -> Prepared:
    """Return what was made of this pack before, or make it."""
    with _lock:
        found = _kept.pop(pack.digest, None) or Prepared(pack)
        _kept[pack.digest] = found
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
        return found
