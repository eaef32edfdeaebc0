"""Codes of 2, 4 or 8 bits in bytes, the first code in the lowest bits."""

from __future__ import annotations

import torch
from torch.nn import functional

__all__ = ["pack_codes", "unpack_codes"]


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack uint8 codes ``[..., m]`` below ``2**bits`` along the last axis; zeros fill the end.

    Examples
    --------
    >>> pack_codes(torch.tensor([1, 2, 15], dtype=torch.uint8), 4).tolist()
    [33, 15]
    """
    if bits == 8:
        return codes.contiguous()
    per_byte = 8 // bits
    codes = functional.pad(codes, (0, -codes.shape[-1] % per_byte))
    packed = codes[..., ::per_byte].clone()
    for place in range(1, per_byte):
        packed |= codes[..., place::per_byte] << (place * bits)
    return packed


def unpack_codes(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Return the first ``count`` codes of each row, uint8 ``[..., count]``.

    Examples
    --------
    >>> unpack_codes(torch.tensor([33, 15], dtype=torch.uint8), 4, 3).tolist()
    [1, 2, 15]
    """
    if bits == 8:
        return packed
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes: torch.Tensor = (packed[..., None] >> shifts) & (2**bits - 1)
    return codes.flatten(-2)[..., :count]
