"""Are these the arrays that the codec takes? Refused by name where not."""

from __future__ import annotations

import math

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray, KVDtype

from .frame import MAX_LAYERS

__all__ = ["require_bits", "require_kv_dtype", "require_pair"]


def require_kv_dtype(kv_dtype: KVDtype | str) -> KVDtype:
    """Return the KV dtype of that name, or raise UsageError."""
    try:
        return KVDtype(kv_dtype)
    except ValueError:
        known = ", ".join(KVDtype)
        raise UsageError(f"no KV dtype {kv_dtype!r:.80}; pass one of {known}") from None


def require_pair(k: BitArray, v: BitArray, kv_dtype: KVDtype, max_bytes: int) -> None:
    """Raise UsageError unless ``k`` and ``v`` are bit patterns [L, H, T, D] of equal shape."""
    require_bits("k", k, kv_dtype)
    require_bits("v", v, kv_dtype)
    if k.shape != v.shape:
        raise UsageError(f"k is {k.shape} and v is {v.shape}; their shapes must be equal")
    if k.shape[0] > MAX_LAYERS or max(k.shape) >= 1 << 32:
        raise UsageError(f"shape {k.shape} has over {MAX_LAYERS} layers or a size of 2**32 or more")
    raw_bytes = 2 * math.prod(k.shape) * kv_dtype.itemsize_bytes
    if raw_bytes > max_bytes:
        raise UsageError(f"k and v are {raw_bytes} bytes, over {max_bytes}; use shorter segments")


def require_bits(name: str, array: object, kv_dtype: KVDtype) -> None:
    """Raise UsageError unless ``array`` is a bit pattern array [L, H, T, D] of ``kv_dtype``."""
    wanted = kv_dtype.bits_dtype
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{name} is a {type(array).__name__}; pass a numpy array of bit patterns")
    if array.dtype != wanted:
        raise UsageError(
            f"{name} is {array.dtype}, and {kv_dtype.value} travels as {wanted.name} bit patterns; "
            f"use .view(np.{wanted.name}) on floats of that size"
        )
    if array.ndim != 4:
        raise UsageError(f"{name} has {array.ndim} dimensions; pass [L, H, T, D]")
