"""How many of what a codec pack has, and where: the arithmetic of level ``linear``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "BELOW",
    "ESCAPE",
    "GROUP",
    "NUM_COARSE",
    "NUM_FINE",
    "ZERO",
    "PackShape",
    "coarse_table",
    "coarse_table_of",
    "fine_table",
    "fine_table_of",
]

GROUP = 16  # channels predicted together: what they say of each other is lost, 0.02 bit
ZERO = 31  # the symbol of a residual of nothing
ESCAPE = 63
BELOW = 4  # how far outside its coarse bin a prediction still tells something, in fine bins
NUM_COARSE = 1 + 2 + 4 + 8
NUM_FINE = (2 + 8) + (4 + 8) + (8 + 8)
MAX_WEIGHTS = 240_000_000  # 32 layers of 1,024 channels with one layer back: 197 million


class PackShape(NamedTuple):
    """Layers, kv heads, head dimension, and how many layers back a prediction looks.

    Examples
    --------
    >>> shape = PackShape(30, 3, 64, 2)
    >>> shape.channels, shape.rows(1, 1), shape.num_weights
    (192, 576, 10524672)
    """

    layers: int
    heads: int
    head_dim: int
    back: int

    @property
    def channels(self) -> int:
        """Channels of K, and of V, of a layer."""
        return self.heads * self.head_dim

    @property
    def padded(self) -> int:
        """Channels as context rows: whole groups."""
        return -(-self.channels // GROUP) * GROUP

    @property
    def groups(self) -> int:
        """Groups of channels of one side."""
        return self.padded // GROUP

    def first_row(self, layer: int) -> int:
        """Return the first context row that a layer's predictions see."""
        return max(layer - self.back, 0) * 2 * self.padded

    def rows(self, layer: int, side: int) -> int:
        """Return the context rows before a layer's K (``side`` 0) or V (1), in its window."""
        return (2 * min(layer, self.back) + side) * self.padded

    @property
    def num_weights(self) -> int:
        """Weights of all layers."""
        inside = self.groups * (self.groups - 1) // 2 * GROUP
        return sum(
            GROUP * (self.groups * self.rows(layer, side) + inside)
            for layer in range(self.layers)
            for side in range(2)
        )

    def require_possible(self) -> None:
        """Raise ValueError for sizes of nothing or beyond reason."""
        if min(self) < 0 or min(self[:3]) < 1 or max(self) > 1 << 16:
            raise ValueError(f"shape {tuple(self)}")
        if (
            self.layers * self.channels * self.channels > MAX_WEIGHTS
            or self.num_weights > MAX_WEIGHTS
        ):
            raise ValueError(f"shape {tuple(self)} has over {MAX_WEIGHTS} weights")


def coarse_table(drop: int) -> int:
    """Return the first of the 2**drop coarse tables of a class."""
    return (1 << drop) - 1


def fine_table(drop: int) -> int:
    """Return the first of the 2**drop + 8 fine tables of a class; ``drop`` is 1 to 3."""
    return sum((1 << d) + 2 * BELOW for d in range(1, drop))


def coarse_table_of(drops: Any) -> Any:
    """Return :func:`coarse_table` of an array of drops."""
    return np.array([coarse_table(drop) for drop in range(4)])[drops]


def fine_table_of(drops: Any) -> Any:
    """Return :func:`fine_table` of an array of drops; 0 where nothing is dropped."""
    return np.array([fine_table(drop) for drop in range(4)])[drops]
