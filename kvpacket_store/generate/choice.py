"""Which score wins, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import ModelError
from kvpacket_store.generate.cutoffs import Cutoffs

__all__ = ["Choice", "best_kept", "best_of"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and how sure it is.

    Parameters
    ----------
    token_id : int
        The choice.
    margin : float
        While every logit moves by less than half of this, the choice stays the same (rounding
        apart: a millionth of the largest logit). Greedy, or with temperature alone, it is the gap
        between the best and the next score, times the temperature, so in units of logits. With
        top-k or top-p it is no more than the distances by which the choice could leave what is
        kept, or a better one enter. A repetition penalty p divides it by p or 1/p, the larger.
    """

    token_id: int
    margin: float


def best_of(scores: npt.NDArray[Any]) -> tuple[int, float]:
    """Return the lowest id of the best score, and how far the next one is."""
    best = int(np.argmax(scores))  # the first of equal ones
    if isnan(scores[best]):
        raise ModelError(
            "the model's logits are not numbers; its weights or its dtype cannot be used"
        )
    others = scores.copy()
    others[best] = -inf
    second = others.max()
    return best, 0.0 if second == scores[best] else float(scores[best]) - float(second)


def best_kept(
    cutoffs: Cutoffs, scaled: npt.NDArray[np.float64], noisy: npt.NDArray[np.float64]
) -> tuple[int, float]:
    """Return the best of those kept, and a distance, as in `Choice.margin`, over temperature."""
    kept = np.full_like(noisy, -inf)
    kept[cutoffs.ids] = noisy[cutoffs.ids]
    best, gap = best_of(kept)
    gap = min(gap, cutoffs.to_leave(scaled[best]))
    cut = noisy.copy()
    cut[cutoffs.ids] = -inf
    rivals = np.flatnonzero(cut > kept[best] - gap)
    if len(rivals):  # each must both come in and win
        lead = float(kept[best] - cut[rivals].max())
        gap = min(gap, max(lead, cutoffs.to_enter(scaled[rivals].max())))
    return best, max(gap, 0.0)
