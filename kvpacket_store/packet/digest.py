"""A digest of the K and V themselves.

Prefilling the same tokens on another engine may give other bits under the same packet key. What is
stored in pieces (layers, chunks) is therefore bound together by this digest, not by the key alone.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray

__all__ = ["kv_digest"]

_DOMAIN = b"kvpacket-store kv digest 1\n"
_ARRAY = struct.Struct("<B4Q")


def kv_digest(k: BitArray, v: BitArray) -> str:
    """Return the hex SHA-256 of K, then V: item size, shape and little-endian bytes of each.

    Parameters
    ----------
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns, of any strides.

    Returns
    -------
    str
        64 hex characters; any bit, any shape and the order of K and V count.

    Raises
    ------
    UsageError
        Not a bit pattern array of rank 4; pass floats through ``.view(np.uint16)``.

    Examples
    --------
    >>> zeros = np.zeros((1, 1, 2, 4), np.uint16)
    >>> kv_digest(zeros, zeros) == kv_digest(zeros.reshape(1, 2, 1, 4), zeros)
    False
    """
    digest = hashlib.sha256(_DOMAIN)
    for name, array in (("k", k), ("v", v)):
        _require_bits(name, array)
        digest.update(_ARRAY.pack(array.dtype.itemsize, *array.shape))
        little_endian = array.dtype.newbyteorder("<")
        for layer in array:  # [H, T, D]: a copy of one layer at most where strides need one
            digest.update(np.ascontiguousarray(layer, little_endian).data)
    return digest.hexdigest()


def _require_bits(name: str, array: object) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != 4 or array.dtype.kind != "u":
        raise UsageError(f"kv digest: {name} must be an array of bit patterns [L, H, T, D]")
