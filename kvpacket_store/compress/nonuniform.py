"""Levels that lie where a channel's values lie, and a few outliers held as they are.

Source: KVQuant (Hooper et al. 2024, arXiv:2401.18079). There the levels are fitted to calibration
data, here to the prompt itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from kvpacket_store.compress.bitpack import pack_codes, unpack_codes
from kvpacket_store.compress.prompt import LayerKV, Rope

__all__ = ["NonuniformKeys", "Rotation", "fit_levels", "quantise_keys_nonuniform"]


def fit_levels(x: torch.Tensor, count: int, rounds: int = 4) -> torch.Tensor:
    """Fit ``count`` ascending levels to each row of ``x``: k-means from quantiles.

    Parameters
    ----------
    x : float32 [..., n]
        Rows, in any order.
    count : int
        Levels a row.
    rounds : int
        Of Lloyd's iteration.

    Returns
    -------
    torch.Tensor
        float32 ``[..., count]``.

    Examples
    --------
    >>> fit_levels(torch.tensor([5.0, 1.0, 5.2, 1.2]), 2)
    tensor([1.1000, 5.1000])
    """
    x = x.sort(dim=-1).values.contiguous()
    size = x.shape[-1]
    middle = (torch.arange(count, device=x.device) * 2 + 1) * size // (2 * count)
    levels = x[..., middle]
    # sorted values of one level lie side by side, so sums are differences of running sums
    running = functional.pad(x.double().cumsum(-1), (1, 0))
    for _ in range(rounds):
        ends = functional.pad(torch.searchsorted(x, _between(levels), right=True), (1, 0))
        ends = functional.pad(ends, (0, 1), value=size)
        held = ends.diff(dim=-1)
        means = running.gather(-1, ends).diff(dim=-1) / held.clamp(min=1)
        levels = torch.where(held > 0, means.float(), levels)
    return levels


def _between(levels: torch.Tensor) -> torch.Tensor:
    """Return the midpoints of neighbouring levels ``[..., count - 1]``: where codes change."""
    return ((levels[..., 1:] + levels[..., :-1]) / 2).contiguous()


@dataclass(frozen=True, slots=True)
class Rotation:
    """What rotates one layer's kept keys back.

    Parameters
    ----------
    rope : Rope
        The prompt's.
    layer : int
        Which layer.
    kept : int64 [H, n] or None
        Slots, a view of the plan's positions; None for 0 to n - 1.
    """

    rope: Rope
    layer: int
    kept: torch.Tensor | None

    def apply(self, k: torch.Tensor) -> torch.Tensor:
        """Rotate keys ``[H, n, D]``."""
        slots = self.kept
        if slots is None:
            slots = torch.arange(k.shape[1], device=k.device).expand(k.shape[:2])
        return self.rope.apply(k, slots, self.layer)


@dataclass(frozen=True, slots=True)
class NonuniformKeys:
    """Keys of one layer before RoPE, as codes of levels; they are rotated when expanded.

    Parameters
    ----------
    codes : uint8 [H, D, n · bits / 8]
        Packed along the tokens.
    levels : float16 [H, D, 2**bits]
        Of each channel.
    outlier_at : int32 [H, D, m]
        Row of each outlier.
    outliers : float [H, D, m]
        Their values, in the prompt's dtype.
    bits : int
        Of a code.
    num_rows : int
        n.
    rotation : Rotation
        Back to where they stood.
    """

    codes: torch.Tensor
    levels: torch.Tensor
    outlier_at: torch.Tensor
    outliers: torch.Tensor
    bits: int
    num_rows: int
    rotation: Rotation

    @property
    def nbytes(self) -> int:
        """Bytes of codes, levels and outliers."""
        held = (self.codes, self.levels, self.outlier_at, self.outliers)
        return sum(tensor.nbytes for tensor in held)

    def expand(self) -> torch.Tensor:
        """Return rotated keys ``[H, n, D]``."""
        codes = unpack_codes(self.codes, self.bits, self.num_rows)
        k = self.levels.gather(-1, codes.long()).to(self.outliers.dtype)
        k.scatter_(-1, self.outlier_at.long(), self.outliers)
        return self.rotation.apply(k.transpose(1, 2))


def quantise_keys_nonuniform(
    rows: LayerKV, rope: Rope, bits: int, outlier_share: float
) -> NonuniformKeys:
    """Quantise keys before RoPE, each channel with levels of its own.

    Parameters
    ----------
    rows : LayerKV
        One layer.
    rope : Rope
        Takes the rotation off and puts it back.
    bits : int
        2 or 4.
    outlier_share : float
        Share of a channel's values, those farthest from its mean, that are held exactly.
    """
    k = rope.remove(rows.k, rows.slots, rows.index).transpose(1, 2).contiguous()  # [H, D, n]
    x = k.float()
    mean = x.mean(dim=-1, keepdim=True)
    at = (x - mean).abs().topk(int(outlier_share * x.shape[-1]), dim=-1).indices
    x = x.scatter(-1, at, mean.expand(at.shape))  # outliers must not draw levels from the rest
    levels = fit_levels(x, 2**bits).half()
    codes = torch.searchsorted(_between(levels.float()), x).to(torch.uint8)
    return NonuniformKeys(
        pack_codes(codes, bits),
        levels,
        at.int(),
        k.gather(-1, at),
        bits,
        num_rows=k.shape[-1],
        rotation=Rotation(rope, rows.index, rows.kept),
    )
