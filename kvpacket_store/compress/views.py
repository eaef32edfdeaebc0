"""Draft views: shorter dense tensors, or packed rows that one layer at a time is expanded from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from kvpacket_store.compress.affine import AffineRows
from kvpacket_store.models import CodedSlots

__all__ = ["DenseRows", "DenseView", "PackedRows", "PackedView"]


class PackedRows(Protocol):
    """K or V of one layer in fewer bits."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors it holds."""
        ...

    def expand(self) -> torch.Tensor:
        """Return ``[H, n, D]`` in the prompt's dtype."""
        ...


@dataclass(frozen=True, slots=True)
class DenseRows:
    """Rows that stay as they are, ``[H, n, D]``.

    Examples
    --------
    >>> DenseRows(torch.zeros(1, 3, 4, dtype=torch.bfloat16)).nbytes
    24
    """

    rows: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.rows.nbytes

    def expand(self) -> torch.Tensor:
        """Return the rows."""
        return self.rows


@dataclass(frozen=True, slots=True)
class DenseView:
    """K and V as tensors.

    Parameters
    ----------
    k, v : float [L, H, n, D]
        ``k`` rotated.
    positions : int64 [L, H, n] or None
        Kept slots.
    prompt_slots : int
        Slots T of the whole prompt.

    Examples
    --------
    >>> k = torch.zeros(2, 1, 3, 4)
    >>> view = DenseView(k, k.clone(), torch.tensor([[[0, 1, 5]]] * 2), prompt_slots=6)
    >>> view.num_slots, view.bits_per_scalar, view.nbytes
    (3, (16.0, 16.0), 240)
    """

    k: torch.Tensor
    v: torch.Tensor
    positions: torch.Tensor | None
    prompt_slots: int

    @property
    def num_slots(self) -> int:
        """Rows n that a head holds."""
        return int(self.k.shape[2])

    @property
    def nbytes(self) -> int:
        """Bytes of k, v and positions."""
        return self.k.nbytes + self.v.nbytes + _bytes_of(self.positions)

    @property
    def bits_per_scalar(self) -> tuple[float, float]:
        """Bits of K and of V over the scalars of the whole prompt."""
        share = self.num_slots / self.prompt_slots
        return 8 * self.k.itemsize * share, 8 * self.v.itemsize * share

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's K and V, ``[H, n, D]``: no copy."""
        return self.k[index], self.v[index]

    def coded(self, index: int) -> None:
        """Return None: nothing is held in bytes."""
        del index


@dataclass(frozen=True, slots=True)
class PackedView:
    """K and V in fewer bits, expanded a layer at a time.

    Parameters
    ----------
    layers : tuple of (PackedRows, PackedRows)
        K and V of each layer.
    positions : int64 [L, H, n] or None
        Kept slots.
    num_slots : int
        Rows n that a head holds.
    prompt_scalars : int
        L·H·T·D of the whole prompt.
    """

    layers: tuple[tuple[PackedRows, PackedRows], ...]
    positions: torch.Tensor | None
    num_slots: int
    prompt_scalars: int
    _coded: dict[int, tuple[CodedSlots, CodedSlots]] = field(default_factory=dict, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales, levels, outliers and positions."""
        scales = sum(part.scale_bytes for parts in self._coded.values() for part in parts)
        return scales + sum(k.nbytes + v.nbytes for k, v in self.layers) + _bytes_of(self.positions)

    @property
    def bits_per_scalar(self) -> tuple[float, float]:
        """Bits of K and of V over the scalars of the whole prompt."""
        k_bytes = sum(k.nbytes for k, _ in self.layers)
        v_bytes = sum(v.nbytes for _, v in self.layers)
        return 8 * k_bytes / self.prompt_scalars, 8 * v_bytes / self.prompt_scalars

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's K and V, ``[H, n, D]``, expanded anew at each call."""
        k, v = self.layers[index]
        return k.expand(), v.expand()

    def coded(self, index: int) -> tuple[CodedSlots, CodedSlots] | None:
        """Return one layer's K and V for row kernels, if they are held as such; made once."""
        if index not in self._coded:
            k, v = self.layers[index]
            if not (isinstance(k, AffineRows) and isinstance(v, AffineRows)):
                return None
            both = k.coded(), v.coded()
            if both[0] is None or both[1] is None:
                return None
            self._coded[index] = both[0], both[1]
        return self._coded[index]


def _bytes_of(positions: torch.Tensor | None) -> int:
    return 0 if positions is None else positions.nbytes
