"""Tensors ↔ bit patterns. Packets hold bits; models compute with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kvpacket_store.types import BitArray, KVDtype

__all__ = ["bits_to_tensor", "kv_dtype_of", "tensor_to_bits", "torch_dtype_of"]

_TORCH: dict[KVDtype, torch.dtype] = {
    KVDtype.BF16: torch.bfloat16,
    KVDtype.FP16: torch.float16,
    KVDtype.FP32: torch.float32,
    KVDtype.FP8_E4M3: torch.float8_e4m3fn,
    KVDtype.FP8_E5M2: torch.float8_e5m2,
}
# numpy has no bf16 and no fp8, and torch's unsigned types are thin: the bits cross as signed.
_SIGNED: dict[int, tuple[torch.dtype, Any]] = {
    1: (torch.uint8, np.uint8),
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
}


def torch_dtype_of(kv_dtype: KVDtype) -> torch.dtype:
    """Return the torch dtype of a KV dtype."""
    return _TORCH[kv_dtype]


def kv_dtype_of(dtype: torch.dtype) -> KVDtype:
    """Return the KV dtype of a torch dtype.

    Examples
    --------
    >>> kv_dtype_of(torch.bfloat16)
    <KVDtype.BF16: 'bf16'>
    """
    return {value: key for key, value in _TORCH.items()}[dtype]


def tensor_to_bits(tensor: torch.Tensor, kv_dtype: KVDtype) -> BitArray:
    """Round ``tensor`` to ``kv_dtype`` where it is not that already, and return its bits.

    Examples
    --------
    >>> [hex(x) for x in tensor_to_bits(torch.tensor([1.0, -0.0]), KVDtype.BF16)]
    ['0x3f80', '0x8000']
    """
    signed, unsigned = _SIGNED[kv_dtype.itemsize_bytes]
    rounded = tensor.detach().to(_TORCH[kv_dtype]).contiguous().cpu()
    bits: BitArray = rounded.view(signed).numpy().view(unsigned)
    return bits


def bits_to_tensor(bits: BitArray, kv_dtype: KVDtype) -> torch.Tensor:
    """Return a tensor of ``kv_dtype`` that shares memory with ``bits`` where they are writable.

    Examples
    --------
    >>> bits_to_tensor(np.array([0x3F80], np.uint16), KVDtype.BF16)
    tensor([1.], dtype=torch.bfloat16)
    """
    signed = {1: np.uint8, 2: np.int16, 4: np.int32}[kv_dtype.itemsize_bytes]
    plain = np.ascontiguousarray(bits).view(signed)
    if not plain.flags.writeable:
        plain = plain.copy()  # torch has no read-only tensors and warns about them
    return torch.from_numpy(plain).view(_TORCH[kv_dtype])
