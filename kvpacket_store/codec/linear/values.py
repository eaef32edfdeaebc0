"""Bit patterns → values and bins, whole arrays at a time, for training."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from kvpacket_store.types import BitArray, KVDtype

from .items import MAX_BIN

__all__ = ["bins_of", "coded_half", "values_of"]

_LAYOUTS = {"bf16": (8, 7), "fp32": (8, 7), "fp16": (5, 10), "fp8_e4m3": (4, 3), "fp8_e5m2": (5, 2)}


def coded_half(items: BitArray, kv_dtype: KVDtype) -> npt.NDArray[np.uint16]:
    """Return the bits that are predicted, in 16: all, or of fp32 the upper half; contiguous."""
    upper = items >> np.uint32(16) if kv_dtype is KVDtype.FP32 else items
    return np.ascontiguousarray(upper, np.uint16)


@cache
def _table(kv_dtype: KVDtype) -> npt.NDArray[np.float32]:
    """Return the value of every bit pattern; those that are no number are the largest."""
    exponent_bits, mantissa_bits = _LAYOUTS[kv_dtype.value]
    bits = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    normal = np.ldexp(1 + mantissa / (1 << mantissa_bits), exponent - bias)
    small = np.ldexp(mantissa / (1 << mantissa_bits), 1 - bias)
    size = np.clip(np.where(exponent == 0, small, normal), 0, 3e38)
    return np.where(bits >> (exponent_bits + mantissa_bits), -size, size).astype(np.float32)


def values_of(items: BitArray, kv_dtype: KVDtype) -> npt.NDArray[np.float32]:
    """Return the values of bit patterns, of any shape."""
    return _table(kv_dtype)[coded_half(items, kv_dtype)]


def bins_of(
    items: BitArray, steps: npt.NDArray[np.uint8], kv_dtype: KVDtype
) -> npt.NDArray[np.int64]:
    """Return the bins of items [N, C] whose channels have these biased step exponents."""
    exponent_bits, mantissa_bits = _LAYOUTS[kv_dtype.value]
    bits = coded_half(items, kv_dtype).astype(np.int64)
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1) | 1 << mantissa_bits
    up = exponent - steps.astype(np.int64)
    size = np.where(up >= 0, mantissa << np.clip(up, 0, 13) >> mantissa_bits, 0)
    size = np.minimum(size, MAX_BIN)
    return np.where(bits >> (exponent_bits + mantissa_bits), -1 - size, size)
