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

from kvpacket_store.generate.answering import Answering, Part
from kvpacket_store.models import RowWork, SlotCache

__all__ = ["PinnedTarget", "RowTarget", "Target", "VerifiedCounts"]


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
    """Verifies on one request's exact K and V, which may have to be fetched first."""

    cache: SlotCache

    def fetch(self) -> None:
        """Begin to bring the exact K and V here, if they are not; return at once."""
        ...

    def is_here(self) -> bool:
        """Whether a verification would not wait for them."""
        ...

    def begin(self, answering: Answering) -> Part[torch.Tensor]:
        """Return the logits ``[vocab]`` of the prompt's last row."""
        ...

    def room(self) -> int:
        """Return how many draft tokens the next verification can hold."""
        ...

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Part[list[int]]:
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


class PinnedTarget:
    """The exact K and V are in ``cache``, and stay; ``logits`` are of the prompt's last row."""

    def __init__(self, cache: SlotCache, logits: torch.Tensor) -> None:
        self.cache = cache
        self._logits = logits

    def fetch(self) -> None:
        """Do nothing."""

    def is_here(self) -> bool:
        """Return True."""
        return True

    def begin(self, answering: Answering) -> Part[torch.Tensor]:
        """Return the logits given."""
        del answering
        yield from ()
        return self._logits


class RowTarget(PinnedTarget):
    """Verifies the last final token and all proposals in one forward of that many rows.

    Parameters
    ----------
    cache, logits
        See `PinnedTarget`.
    counts : VerifiedCounts
        Rows run again are added to it.
    guard_logits : float
        Rows whose choice could fall otherwise if logits moved by so much are run again alone; 0
        where rows are alike.
    """

    def __init__(
        self,
        cache: SlotCache,
        logits: torch.Tensor,
        counts: VerifiedCounts,
        *,
        guard_logits: float = 0.0,
    ) -> None:
        super().__init__(cache, logits)
        self._counts = counts
        self._guard_logits = guard_logits

    def room(self) -> int:
        """Return how many slots are left behind the last final token."""
        return self.cache.num_slots - self.cache.length - 1

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Part[list[int]]:
        """See `Target`."""
        start, tokens = self.cache.length, [fresh[-1], *proposed]
        rows = yield RowWork(self.cache, tokens, len(tokens))
        chosen: list[int] = []
        for index, row in enumerate(rows):
            choice = answering.decide(row, chosen)
            if choice.margin < 2 * self._guard_logits:  # each logit may move by so much
                self._counts.guarded += 1
                self.cache.set_length(start + index)
                alone = yield RowWork(self.cache, tokens[index : index + 1])
                choice = answering.decide(alone[-1], chosen)
            chosen.append(choice.token_id)
            if index == len(proposed) or proposed[index] != choice.token_id:
                break
        self.cache.set_length(start + len(chosen))
        return chosen
