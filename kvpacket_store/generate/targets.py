"""What decides: forwards on the exact K and V, over tokens that may or may not be right.

Two ways to the same promise. Where a row's bits do not depend on its company
(``Model.rows_are_alike``), a verification may have any shape, and what it decides is what one-token
decoding decides. Elsewhere `BlockTarget` keeps the shape fixed (``exactness="bit"``), or
`RowTarget` decides rows again that are near a tie (``exactness="guarded"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from kvpacket_store.generate.answering import Answering, Forwards
from kvpacket_store.models import RowWork, SlotCache

__all__ = ["RowTarget", "Target", "VerifiedCounts"]


@dataclass(slots=True)
class VerifiedCounts:
    """What became of drafts.

    Parameters
    ----------
    accepted, rejected : int
        Draft tokens. Those behind a rejected one count as rejected.
    rounds : int
        Verifications.
    guarded : int
        Rows near a tie, which one-token decoding decided again.
    """

    accepted: int = 0
    rejected: int = 0
    rounds: int = 0
    guarded: int = 0

    @property
    def mean_accepted(self) -> float | None:
        """Draft tokens accepted a round; None without rounds."""
        return self.accepted / self.rounds if self.rounds else None


class Target(Protocol):
    """Verifies on one request's exact K and V."""

    cache: SlotCache

    def room(self) -> int:
        """Return how many draft tokens the next verification can hold."""
        ...

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Forwards.Tokens:
        """Return the target's own choices as far as the draft saw them coming, and one more.

        Parameters
        ----------
        answering : Answering
            All of its final tokens but the last have their rows in the cache.
        fresh : sequence of int
            Tokens that became final since the last call, the last one without its row.
        proposed : sequence of int
            The draft's guess of what follows; at most `room`.
        """
        ...


class RowTarget:
    """Verifies the last final token and all proposals in one forward of that many rows.

    Parameters
    ----------
    cache : SlotCache
        The exact K and V of the prompt.
    guard_logits : float
        Rows whose choice could fall otherwise if logits moved by so much are run again alone; 0
        where rows are alike.
    """

    def __init__(
        self, cache: SlotCache, counts: VerifiedCounts, *, guard_logits: float = 0.0
    ) -> None:
        self.cache = cache
        self._counts = counts
        self._guard_logits = guard_logits

    def room(self) -> int:
        """Return how many slots are left behind the last final token."""
        return int(self.cache.k_slots.shape[2]) - self.cache.length - 1

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Forwards.Tokens:
        """See `Target`."""
        start, tokens = self.cache.length, [fresh[-1], *proposed]
        rows = yield RowWork(self.cache, tokens, len(tokens))
        chosen: list[int] = []
        for index, row in enumerate(rows):
            choice = answering.choose(row, chosen)
            if choice.margin < self._guard_logits:
                self._counts.guarded += 1
                self.cache.set_length(start + index)
                alone = yield RowWork(self.cache, tokens[index : index + 1])
                choice = answering.choose(alone[-1], chosen)
            chosen.append(choice.token_id)
            if index == len(proposed) or proposed[index] != choice.token_id:
                break
        self.cache.set_length(start + len(chosen))
        return chosen


def accepted_rows(
    answering: Answering, rows: torch.Tensor, proposed: Sequence[int]
) -> list[int]:
    """Return the choices that rows ``[1 + n, vocab]`` lead to, the first wrong proposal's last."""
    chosen: list[int] = []
    for index, row in enumerate(rows):
        chosen.append(answering.choose(row, chosen).token_id)
        if index == len(proposed) or proposed[index] != chosen[-1]:
            break
    return chosen
