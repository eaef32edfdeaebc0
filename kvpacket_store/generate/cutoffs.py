"""Top-k and top-p: which tokens may be chosen at all, and how far from the cut the others are.

Scores here are logits over temperature. A distance d means: while every score moves by less than
d / 2, what it is said of does not cross the cut. Both orders are by score, ties by the lowest id.
"""

from __future__ import annotations

from math import inf, log, log1p

import numpy as np
import numpy.typing as npt

__all__ = ["Cutoffs"]

Scores = npt.NDArray[np.float64]


class Cutoffs:
    """The tokens that top-k leaves, and of those the ones that top-p leaves.

    Parameters
    ----------
    scores : float64 [vocab]
        The largest is 0.
    top_k : int
        Keep so many; 0 keeps all.
    top_p : float
        Keep a token while those before it have less than this share of the probability that top-k
        left; the first is always kept. 1 keeps all.

    Examples
    --------
    >>> scores = np.log([1.0, 0.2, 0.5, 0.2])
    >>> Cutoffs(scores, top_k=3, top_p=1.0).ids.tolist()
    [0, 1, 2]
    >>> Cutoffs(scores, top_k=0, top_p=0.6).ids.tolist()  # 0.53 and 0.26 of the probability
    [0, 2]
    """

    def __init__(self, scores: Scores, top_k: int, top_p: float) -> None:
        self.ids: npt.NDArray[np.intp] = np.arange(len(scores))
        self._lowest_in = self._highest_out = -inf
        if 0 < top_k < len(scores):
            self._keep_top_k(scores, top_k)
        self._nucleus: _Nucleus | None = None
        if top_p < 1:
            self._nucleus = _Nucleus(scores[self.ids], top_p)
            self.ids = np.sort(self.ids[self._nucleus.kept])

    def to_leave(self, score: float) -> float:
        """Return the distance of a kept score from being cut."""
        distance = score - self._highest_out
        return distance if self._nucleus is None else min(distance, self._nucleus.to_leave(score))

    def to_enter(self, score: float) -> float:
        """Return the distance of a cut score from being kept."""
        distance = self._lowest_in - score
        return distance if self._nucleus is None else max(distance, self._nucleus.to_enter(score))

    def _keep_top_k(self, scores: Scores, top_k: int) -> None:
        """Exactly k, where Hugging Face keeps all that tie with the k-th (bf16 logits often tie).

        A kept set that grows when one bit changes would leave no distance to speak of.
        """
        border = len(scores) - top_k
        parts = np.partition(scores, (border - 1, border))
        self._highest_out, self._lowest_in = float(parts[border - 1]), float(parts[border])
        above = np.flatnonzero(scores > self._lowest_in)
        tied = np.flatnonzero(scores == self._lowest_in)
        self.ids = np.sort(np.concatenate([above, tied[: top_k - len(above)]]))


class _Nucleus:
    """Top-p over the scores that are left.

    When every score moves by less than h, the odds of any set of tokens change by less than the
    factor exp(2h), also where top-k chooses anew what there is beside that set. So a cut score
    stays out while some set that ranks before it stays before it and keeps the share, and a kept
    one stays in while all that can come before it stay below the share.
    """

    def __init__(self, scores: Scores, share: float) -> None:
        weights = np.exp(scores)
        self._total = float(weights.sum())
        # what is below weighs at most 1 - share all together, so it is cut, and need not be sorted
        floor = log1p(-share) + log(self._total / len(scores))
        near = np.flatnonzero(scores >= floor)
        order = near[np.argsort(-scores[near], kind="stable")]
        self._ranked = np.append(scores[order], floor)
        self._mass = np.cumsum(weights[order])
        before = np.append(0.0, self._mass[:-1])
        self._count = int((before < share * self._total).sum())
        self._odds_of_share = log(share) - log1p(-share)
        self.kept = order[: self._count]

    def to_leave(self, score: float) -> float:
        first = int(np.searchsorted(-self._ranked[:-1], -score))
        others = self._mass[first:] - np.exp(score)
        reach = score - self._ranked[first + 1 :]
        return float(np.minimum(reach, self._odds_of_share - self._log_odds(others)).max())

    def to_enter(self, score: float) -> float:
        last = self._count - 1
        reach = self._ranked[last:-1] - score
        return float(
            np.minimum(reach, self._log_odds(self._mass[last:]) - self._odds_of_share).max()
        )

    def _log_odds(self, mass: Scores) -> Scores:
        # sums of 50,000 doubles are right to about 1e-12; a difference below that says nothing
        least = 1e-12 * self._total
        with np.errstate(divide="ignore"):
            inside: Scores = np.log(np.maximum(mass, 0.0))
        return inside - np.log(np.maximum(self._total - mass, least))
