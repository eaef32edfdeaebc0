"""What lies before a packet in a prompt, as far as its correction goes by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Before", "Predecessors"]


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """What lies between the preamble and a packet.

    Parameters
    ----------
    positions : int
        How many; 0 for the first packet.
    repeats : uint8 ``[T]``
        For each token of the segment: 1 where it stands in a packet before and not earlier in its
        own, 2 where the same goes for it and the token before it together, else 0.
    """

    positions: int
    repeats: npt.NDArray[np.uint8]


class Predecessors:
    """The packets of a prompt so far.

    Examples
    --------
    >>> predecessors = Predecessors()
    >>> predecessors.then([5, 6, 7], positions=3).positions
    0
    >>> before = predecessors.then([9, 5, 6, 5], positions=4)
    >>> before.positions, before.repeats.tolist()
    (3, [0, 1, 2, 0])
    """

    def __init__(self) -> None:
        self._positions = 0
        self._tokens: list[npt.NDArray[np.int64]] = []
        self._pairs: list[npt.NDArray[np.int64]] = []

    def then(self, token_ids: Sequence[int], positions: int) -> Before:
        """Say what lies before the next packet, and take that in.

        Parameters
        ----------
        token_ids : sequence of int
            Of its segment.
        positions : int
            That the packet takes, soft tokens that stay included.
        """
        tokens = np.array(token_ids, np.int64)
        pairs = (tokens[:-1] << 32) | tokens[1:]
        before = Before(self._positions, self._repeats(tokens, pairs))
        self._positions += positions
        self._tokens.append(tokens)
        self._pairs.append(pairs)
        return before

    def _repeats(
        self, tokens: npt.NDArray[np.int64], pairs: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint8]:
        repeats = np.zeros(len(tokens), np.uint8)
        if self._tokens:
            repeats[_is_new(tokens) & np.isin(tokens, np.concatenate(self._tokens))] = 1
            second = repeats[1:]
            second[_is_new(pairs) & np.isin(pairs, np.concatenate(self._pairs))] = 2
        return repeats


def _is_new(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return where a value stands for the first time."""
    is_new = np.zeros(len(values), np.bool_)
    is_new[np.unique(values, return_index=True)[1]] = True
    return is_new
