"""How many tokens to draft: where the expected tokens per time are most.

Source: VeriCache (arXiv:2605.17613) eq. 3 and appendix B choose one horizon a workload, offline;
here each request follows its own acceptance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

CLOSE_LOGITS = 0.5
"""A choice that was won by less is close."""

_SURE_SHARE = 0.75

__all__ = ["CLOSE_LOGITS", "Costs", "FixedHorizon", "Horizon"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in units of one plain step on the exact K and V.

    Parameters
    ----------
    draft : float
        One draft step.
    verify : float
        A verification of one row.
    row : float
        Each further row of it.
    shared, draft_shared : float
        What of a plain step and of a draft step is paid once for all requests of a forward: the
        reading of weights.
    """

    draft: float = 0.5
    verify: float = 1.0
    row: float = 0.12
    shared: float = 0.0
    draft_shared: float = 0.0

    def without_draft(self) -> Costs:
        """Return the same for drafts that cost nothing to make."""
        return replace(self, draft=0.0, draft_shared=0.0)

    def among(self, requests: int) -> Costs:
        """Return the same for one of so many requests that share their forwards.

        Each then pays a part of the weights' reading, so that its own rows weigh more.

        Examples
        --------
        >>> costs = Costs(draft=0.75, row=0.1, shared=0.75, draft_shared=0.5).among(2)
        >>> round(costs.draft, 2), costs.verify, round(costs.row, 2)
        (0.8, 1.0, 0.16)
        """
        saved = 1 - 1 / requests
        plain = 1 - saved * self.shared
        return Costs(
            draft=(self.draft - saved * self.draft_shared) / plain,
            verify=(self.verify - saved * self.shared) / plain,
            row=self.row / plain,
            shared=self.shared / requests / plain,
            draft_shared=self.draft_shared / requests / plain,
        )

    def speedup(self, accepted_share: float, count: int) -> float:
        """Return tokens per plain step for ``count`` drafts, each accepted with that chance.

        Examples
        --------
        >>> round(Costs(draft=0.5, verify=1.0, row=0.1).speedup(1.0, 10), 2)
        1.57
        >>> Costs().speedup(0.5, 0)
        1.0
        """
        return self.speedups(accepted_share, count)[count]

    def speedups(self, accepted_share: float, most: int) -> list[float]:
        """Return the same for 0 to ``most`` drafts."""
        found, accepted = [], 0.0
        for count in range(most + 1):
            accepted += accepted_share**count if count else 0.0
            found.append((accepted + 1) / (count * (self.draft + self.row) + self.verify))
        return found


class FixedHorizon:
    """Always the same."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens

    def count(self, requests: int = 1) -> int:
        """Return the number given."""
        del requests
        return self._num_tokens

    def gain(self, requests: int = 1) -> float:
        """Return 0: what was told to draft so much goes by no costs."""
        del requests
        return 0.0

    @property
    def ends_at_close_ones(self) -> bool:
        """Return False: drafts end where they were told to."""
        return False

    def learn(self, proposed: int, accepted: int, close_at: int | None = None) -> None:
        """Do nothing."""


class Horizon:
    """Follows one request's acceptance.

    Parameters
    ----------
    costs : Costs
        Of this machine at this context.
    start : float
        Share of drafts accepted, to begin with.
    most : int
        Longest draft.
    always : bool
        Draft at least one token a round, even where drafting does not pay.

    Examples
    --------
    >>> horizon = Horizon(Costs(draft=0.4, row=0.1))
    >>> before = horizon.count()
    >>> for _ in range(20): horizon.learn(proposed=before, accepted=0)
    >>> before > horizon.count() == 0
    True
    """

    def __init__(
        self, costs: Costs, *, start: float = 0.85, most: int = 32, always: bool = False
    ) -> None:
        self._costs = costs
        self._share = start
        self._most = most
        self._least = 1 if always else 0
        self._idle_rounds = 0
        self._close_share = 0.5

    def count(self, requests: int = 1) -> int:
        """Return how many tokens to draft now; 0 where it does not pay.

        Parameters
        ----------
        requests : int
            How many share forwards with this one, itself included.
        """
        best, _ = self._best(requests)
        if best == 0:
            self._idle_rounds += 1
            if self._idle_rounds % 16 == 0:  # text changes: look again now and then
                return 1
        return best

    def gain(self, requests: int = 1) -> float:
        """Return the tokens per plain step that are expected of the next draft."""
        return self._best(requests)[1]

    def _best(self, requests: int) -> tuple[int, float]:
        costs = self._costs.among(requests)
        speeds = costs.speedups(self._share, self._most)
        count = max(range(self._least, self._most + 1), key=speeds.__getitem__)
        return count, speeds[count]

    @property
    def ends_at_close_ones(self) -> bool:
        """Whether a draft should end with a choice that was close (`CLOSE_LOGITS`).

        Not where close choices turn out right as a rule: a fine draft is wrong in nothing else.
        """
        return self._close_share < _SURE_SHARE

    def learn(self, proposed: int, accepted: int, close_at: int | None = None) -> None:
        """Take in a round; the last 30 tokens or so count.

        Parameters
        ----------
        proposed, accepted : int
            Tokens.
        close_at : int, optional
            Which of those proposed was the first close choice, counted from 0.
        """
        for n in range(min(proposed, accepted + 1)):
            self._share += 0.05 * ((n < accepted) - self._share)
        if close_at is not None and accepted >= close_at:
            self._close_share += 0.1 * ((accepted > close_at) - self._close_share)
