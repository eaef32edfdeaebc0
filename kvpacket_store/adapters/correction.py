"""What a packet would have seen of the packets before it, as far as that is the same everywhere.

A packet is prefilled alone. Behind other documents its K and V would be others, and part of the
difference is a linear function of the row itself, the same for all texts: with SmolLM2 it explains
a quarter of it for K and a tenth for V, and takes a third of the KL to full recompute. It is added
where packets are placed; records know nothing of it, and no token is recomputed.

Words that were said before make for another part: a model marks what it has read already, and a
packet alone cannot know. Which of its tokens are in the packets before it is plain from token ids,
so rows that repeat have maps and biases of their own: twice as much of V is explained on text
unlike what it was fitted to (0.11 where one map for all explains 0.05).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import AdapterError

__all__ = ["DISTANCE_EDGES", "REPEAT_KINDS", "Correction"]

DISTANCE_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows as far from their segment's start as these begin another bias: first rows differ most."""

REPEAT_KINDS = 3
"""Tokens that are new, that repeat, and that repeat together with the one before them. Longer
repetitions told nothing more."""

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Maps and biases for K and V of each kv head.

    A row ``x`` of a segment with ``n`` positions between it and the preamble becomes
    ``x + n / (n + half_tokens) * (x @ map + bias[distance])``. The first packet stays as it is.

    Parameters
    ----------
    maps : float32 ``[R, 2, L, H, D, D]``
        For rows by how they repeat (`assemble.Before`; the last kind stands for all above it), and
        for K (before RoPE) and V. R is 1 or 3.
    biases : float32 ``[R, 2, L, H, 10, D]``
        Besides by the row's distance to its segment's start, see `DISTANCE_EDGES`.
    half_tokens : int
        Positions before a packet that make for half of the correction.

    Raises
    ------
    AdapterError
        Another shape or dtype, or numbers that are not finite.

    Examples
    --------
    >>> maps = np.zeros((1, 2, 1, 1, 4, 4), np.float32)
    >>> biases = np.zeros((1, 2, 1, 1, 10, 4), np.float32)
    >>> correction = Correction(maps, biases, half_tokens=150)
    >>> correction.weight(0), correction.weight(150), len(correction.digest)
    (0.0, 0.5, 64)
    """

    maps: _Floats
    biases: _Floats
    half_tokens: int

    def __post_init__(self) -> None:
        kinds, sides, *heads, dim, _ = self.maps.shape if self.maps.ndim == 6 else (0,) * 6
        for name, array, shape in (
            ("maps", self.maps, (kinds, sides, *heads, dim, dim)),
            ("biases", self.biases, (kinds, sides, *heads, len(DISTANCE_EDGES) + 1, dim)),
        ):
            is_sized = kinds in {1, REPEAT_KINDS} and sides == 2
            if not is_sized or array.shape != shape or array.dtype != np.float32:
                raise AdapterError(
                    f"correction {name} are {array.dtype}{list(array.shape)}; float32 maps "
                    f"[1 or {REPEAT_KINDS}, 2, layers, heads, dim, dim] and biases "
                    "[…, layers, heads, 10, dim] are needed: fit it again (kvps adapter correct)"
                )
            if not np.isfinite(array).all():
                raise AdapterError(f"correction {name} have numbers that are not finite")
            array.setflags(write=False)
        if self.half_tokens < 1:
            raise AdapterError(f"correction half_tokens is {self.half_tokens}; 1 is the least")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, kv heads and head dimension that it is for."""
        return self.maps.shape[2], self.maps.shape[3], self.maps.shape[4]

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all of it."""
        digest = hashlib.sha256(b"kvpacket-correction-2")
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
