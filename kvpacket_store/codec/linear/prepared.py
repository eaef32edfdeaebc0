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
    def tables(self) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
        """Sums of frequencies before each symbol [n, 66], and every 64th slot's symbol [n, 64]."""
        sums = np.cumsum(self.frequencies, axis=1)
        cumulative = np.full((len(sums), 66), 65535, np.uint16)
        cumulative[:, 0], cumulative[:, 1:65] = 0, sums
        slots = np.arange(0, 4096, 64)
        firsts = (sums[:, None, :] <= slots[None, :, None]).sum(axis=2)
        return cumulative.ravel(), firsts.astype(np.uint8).ravel()

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
