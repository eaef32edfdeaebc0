"""Quantisers: one layer's K and V to packed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kvpacket_store.compress.affine import AffineRows, quantise_channels, quantise_tokens
from kvpacket_store.compress.nonuniform import quantise_keys_nonuniform
from kvpacket_store.compress.prompt import LayerKV
from kvpacket_store.compress.views import DenseRows, PackedRows
from kvpacket_store.errors import UsageError

__all__ = ["KVQuant", "Kivi", "Noise", "PerToken", "Quantiser", "RowsWithTail"]

_GROUP = 64  # channels of a token that share a step: step and lowest value add half a bit a scalar
_KIVI_GROUP = 32  # tokens of a channel, and channels of a token, as in the paper
_OUTLIER_SHARE = 0.01


class Quantiser(Protocol):
    """Rewrites kept rows, as a rule in fewer bits."""

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of a scalar's code, without scales and levels."""
        ...

    def pack(self, rows: LayerKV) -> tuple[PackedRows, PackedRows]:
        """Return K and V of one layer."""
        ...


@dataclass(frozen=True, slots=True)
class PerToken:
    """``int8``, ``int4``: round to nearest, a token's channels in groups of up to 64.

    Parameters
    ----------
    code_bits : int
        2, 4 or 8.
    """

    code_bits: int

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of a code."""
        del dtype
        return self.code_bits

    def pack(self, rows: LayerKV) -> tuple[AffineRows, AffineRows]:
        """Return K and V of one layer."""
        k, v = (quantise_tokens(x, self.code_bits, _GROUP) for x in (rows.k, rows.v))
        return k, v


@dataclass(frozen=True, slots=True)
class RowsWithTail:
    """Packed rows, and the last ones as they are.

    Parameters
    ----------
    head : AffineRows
        ``[H, m, D]``.
    tail : float [H, n - m, D]
        Of its own memory.
    """

    head: AffineRows
    tail: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.head.nbytes + self.tail.nbytes

    def expand(self) -> torch.Tensor:
        """Return ``[H, n, D]``."""
        return torch.cat([self.head.expand(), self.tail], dim=1)


@dataclass(frozen=True, slots=True)
class Kivi:
    """Keys a channel at a time, in groups of 32 tokens; values a token at a time.

    The question's rows, and those before them that fill no group, stay as they are.

    Parameters
    ----------
    code_bits : int
        2 or 4.

    References
    ----------
    Liu et al. 2024, arXiv:2402.02750.
    """

    code_bits: int

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of a code."""
        del dtype
        return self.code_bits

    def pack(self, rows: LayerKV) -> tuple[RowsWithTail, RowsWithTail]:
        """Return K and V of one layer."""
        packed = max(rows.k.shape[1] - rows.recent, 0) // _KIVI_GROUP * _KIVI_GROUP
        k = quantise_channels(rows.k[:, :packed], self.code_bits, _KIVI_GROUP)
        v = quantise_tokens(rows.v[:, :packed], self.code_bits, _KIVI_GROUP)
        # a slice would keep all rows alive
        k_tail, v_tail = rows.k[:, packed:].clone(), rows.v[:, packed:].clone()
        return RowsWithTail(k, k_tail), RowsWithTail(v, v_tail)


@dataclass(frozen=True, slots=True)
class KVQuant:
    """Keys before RoPE, each channel with levels of its own and 1 % outliers; values per token.

    The values' steps are even, unlike the paper's.

    Parameters
    ----------
    code_bits : int
        2 or 4.
    """

    code_bits: int

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of a code."""
        del dtype
        return self.code_bits

    def pack(self, rows: LayerKV) -> tuple[PackedRows, PackedRows]:
        """Return K and V of one layer."""
        if rows.rope is None:
            raise UsageError(
                "kvquant quantises keys before RoPE and was handed none to take off; "
                "kivi does without"
            )
        k = quantise_keys_nonuniform(rows, rows.rope, self.code_bits, _OUTLIER_SHARE)
        return k, quantise_tokens(rows.v, self.code_bits, _GROUP)


@dataclass(frozen=True, slots=True)
class Noise:
    """A test compressor: adds Gaussian noise, seeded by the layer, and saves nothing.

    Parameters
    ----------
    strength : float
        Deviation of the noise over the root mean square of K, or V, of a layer.
    """

    strength: float

    def bits(self, dtype: torch.dtype) -> float:
        """Return the bits of ``dtype``."""
        return dtype.itemsize * 8

    def pack(self, rows: LayerKV) -> tuple[DenseRows, DenseRows]:
        """Return K and V of one layer."""
        generator = torch.Generator().manual_seed(rows.index)
        k, v = (self._noisy(x, generator) for x in (rows.k, rows.v))
        return k, v

    def _noisy(self, x: torch.Tensor, generator: torch.Generator) -> DenseRows:
        noise = torch.randn(x.shape, generator=generator).to(x.device)
        size = x.float().square().mean().sqrt()
        return DenseRows((x.float() + self.strength * size * noise).to(x.dtype))
