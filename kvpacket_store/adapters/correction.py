"""What a packet would have seen of the packets before it, as far as that is the same everywhere.

A packet is prefilled alone. Behind other documents its K and V would be others, and part of the
difference is a linear function of the row itself, the same for all texts: with SmolLM2 it explains
a quarter of it for K and a tenth for V, and takes a third of the KL to full recompute. It is added
where packets are placed; records know nothing of it, and no token is recomputed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import AdapterError

__all__ = ["DISTANCE_EDGES", "Correction"]

DISTANCE_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows as far from their segment's start as these begin another bias: first rows differ most."""

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """A map and biases for K and V of each kv head.

    A row ``x`` of a segment with ``n`` positions between it and the preamble becomes
    ``x + n / (n + half_tokens) * (x @ map + bias[distance])``. The first packet stays as it is.

    Parameters
    ----------
    maps : float32 ``[2, L, H, D, D]``
        For K (before RoPE) and V.
    biases : float32 ``[2, L, H, 10, D]``
        By the row's distance to its segment's start, see `DISTANCE_EDGES`.
    half_tokens : int
        Positions before a packet that make for half of the correction.

    Raises
    ------
    AdapterError
        Another shape or dtype, or numbers that are not finite.

    Examples
    --------
    >>> maps, biases = np.zeros((2, 1, 1, 4, 4), np.float32), np.zeros((2, 1, 1, 10, 4), np.float32)
    >>> correction = Correction(maps, biases, half_tokens=150)
    >>> correction.weight(0), correction.weight(150), len(correction.digest)
    (0.0, 0.5, 64)
    """

    maps: _Floats
    biases: _Floats
    half_tokens: int

    def __post_init__(self) -> None:
        sides, *heads, dim, _ = self.maps.shape if self.maps.ndim == 5 else (0, 0, 0, 0, 0)
        for name, array, shape in (
            ("maps", self.maps, (sides, *heads, dim, dim)),
            ("biases", self.biases, (sides, *heads, len(DISTANCE_EDGES) + 1, dim)),
        ):
            if sides != 2 or array.shape != shape or array.dtype != np.float32:
                raise AdapterError(
                    f"correction {name} are {array.dtype}{list(array.shape)}; float32 maps "
                    "[2, layers, heads, dim, dim] and biases [2, layers, heads, 10, dim] are needed"
                )
            if not np.isfinite(array).all():
                raise AdapterError(f"correction {name} have numbers that are not finite")
            array.setflags(write=False)
        if self.half_tokens < 1:
            raise AdapterError(f"correction half_tokens is {self.half_tokens}; 1 is the least")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, kv heads and head dimension that it is for."""
        return self.maps.shape[1], self.maps.shape[2], self.maps.shape[3]

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all of it."""
        digest = hashlib.sha256(b"kvpacket-correction-1")
        digest.update(np.array([self.half_tokens, *self.maps.shape], "<u8").tobytes())
        for array in (self.maps, self.biases):
            digest.update(np.ascontiguousarray(array, "<f4").tobytes())
        return digest.hexdigest()

    def weight(self, positions_before: int) -> float:
        """Return how much of it a packet gets behind so many positions: 0 to 1."""
        return positions_before / (positions_before + self.half_tokens)

    def scaled(self, strength: float) -> Correction:
        """Return the same, weaker or stronger, in numbers that float16 can hold: half the bytes."""
        maps, biases = (
            (array * np.float32(strength)).astype(np.float16).astype(np.float32)
            for array in (self.maps, self.biases)
        )
        return Correction(maps, biases, self.half_tokens)
