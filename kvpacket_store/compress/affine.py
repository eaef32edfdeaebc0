"""Round to nearest on an even grid: a group of scalars shares its lowest value and its step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvpacket_store.compress.bitpack import pack_codes, unpack_codes
from kvpacket_store.models import CodedSlots

__all__ = ["AffineRows", "quantise_channels", "quantise_tokens"]

_LARGEST = 65504.0  # of float16, in which steps and lowest values are held
_ROUND_UP = 1 + 2**-10  # rounding to float16 must not shorten a step: the top would be cut


@dataclass(frozen=True, slots=True)
class AffineRows:
    """K or V of one layer as ``low + code · step``.

    Parameters
    ----------
    codes : uint8
        Packed along the last axis.
    low, step : float16
        Of each group, broadcast over it.
    bits : int
        Of a code: 2, 4 or 8.
    grouped : tuple of int
        Shape of the codes before packing: ``[H, n, D / g, g]`` or ``[H, n / g, g, D]``.
    shape : tuple of int
        ``(H, n, D)``.
    dtype : torch.dtype
        Of the rows.
    """

    codes: torch.Tensor
    low: torch.Tensor
    step: torch.Tensor
    bits: int
    grouped: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of codes, lowest values and steps."""
        return self.codes.nbytes + self.low.nbytes + self.step.nbytes

    def coded(self) -> CodedSlots | None:
        """Return the same for row kernels; None unless a slot has one group, in bytes, on a CPU."""
        heads, rows, dim = self.shape
        if self.bits != 8 or self.low.shape != (heads, rows, 1, 1) or self.codes.is_cuda:
            return None
        low, step = (part.float().view(heads, rows).numpy() for part in (self.low, self.step))
        return CodedSlots(self.codes.view(heads, rows, dim).numpy(), low, step)

    def expand(self) -> torch.Tensor:
        """Return ``[H, n, D]``."""
        codes = unpack_codes(self.codes, self.bits, self.grouped[-1]).float()
        return (codes * self.step + self.low).to(self.dtype).view(self.shape)


def _quantise(x: torch.Tensor, grouped: tuple[int, ...], axis: int, bits: int) -> AffineRows:
    """Quantise ``x [H, n, D]``, viewed as ``grouped``, whose groups lie along ``axis``."""
    groups = x.float().reshape(grouped)
    low = groups.amin(axis, keepdim=True).clamp(-_LARGEST, _LARGEST).half()
    reach = groups.amax(axis, keepdim=True) - low.float()
    step = (reach / (2**bits - 1) * _ROUND_UP).clamp(0, _LARGEST).half()
    # a step of 0 divides nothing: every code is then 0, the lowest value
    apart = torch.where(step > 0, (groups - low.float()) / step.float(), 0.0)
    codes = apart.round().clamp(0, 2**bits - 1).to(torch.uint8)
    return AffineRows(
        pack_codes(codes, bits), low, step, bits, grouped, tuple(x.shape), dtype=x.dtype
    )


def quantise_tokens(x: torch.Tensor, bits: int, group: int) -> AffineRows:
    """Quantise ``[H, n, D]`` a token at a time, in groups of at most ``group`` channels.

    Every scalar comes back within half a step, the step being its group's range over
    ``2**bits - 1``.

    Examples
    --------
    >>> quantise_tokens(torch.tensor([[[0.0, 1.0, 5.0, 15.0]]]), 4, 64).expand().round()
    tensor([[[ 0.,  1.,  5., 15.]]])
    """
    heads, rows, dim = x.shape
    width = max(w for w in range(1, min(group, dim) + 1) if dim % w == 0)
    return _quantise(x, (heads, rows, dim // width, width), 3, bits)


def quantise_channels(x: torch.Tensor, bits: int, group: int) -> AffineRows:
    """Quantise ``[H, n, D]`` a channel at a time, in groups of ``group`` tokens that divide n.

    Keys have channels of their own size: shared steps along a channel lose less.

    Examples
    --------
    >>> quantise_channels(torch.tensor([[[0.0, 90.0], [3.0, 96.0]]]), 2, 2).expand().round()
    tensor([[[ 0., 90.],
             [ 3., 96.]]])
    """
    heads, rows, dim = x.shape
    return _quantise(x, (heads, rows // group, group, dim), 2, bits)
