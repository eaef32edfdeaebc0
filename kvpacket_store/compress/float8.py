"""fp8 (e4m3) with one scale a channel."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvpacket_store.compress.prompt import LayerKV

__all__ = ["Float8", "Float8Rows", "quantise_float8"]

_LARGEST = 448.0  # of e4m3


@dataclass(frozen=True, slots=True)
class Float8Rows:
    """K or V of one layer as ``codes · scale``.

    Parameters
    ----------
    codes : float8_e4m3fn [H, n, D]
        One byte each.
    scale : float32 [H, 1, D]
        Of each channel.
    dtype : torch.dtype
        Of the rows.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scale.nbytes

    def expand(self) -> torch.Tensor:
        """Return ``[H, n, D]``."""
        return (self.codes.float() * self.scale).to(self.dtype)


def quantise_float8(x: torch.Tensor) -> Float8Rows:
    """Scale each channel of ``x [H, n, D]`` so that its largest value is e4m3's.

    A scalar comes back within 1/16 of itself, or within a 2**18th of its channel's largest.

    Examples
    --------
    >>> quantise_float8(torch.tensor([[[1.0, 300.0], [-2.0, 150.0]]])).expand().round()
    tensor([[[  1., 300.],
             [ -2., 150.]]])
    """
    scale = x.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / _LARGEST
    codes = (x.float() / scale).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
    return Float8Rows(codes, scale, x.dtype)


@dataclass(frozen=True, slots=True)
class Float8:
    """``fp8``: K and V in e4m3, a scale for each channel of the prompt."""

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of a code."""
        del dtype
        return 8

    def pack(self, rows: LayerKV) -> tuple[Float8Rows, Float8Rows]:
        """Return K and V of one layer."""
        return quantise_float8(rows.k), quantise_float8(rows.v)
