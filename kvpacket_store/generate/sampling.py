"""Logits → token id. Noise is keyed by (seed, position): a token does not depend on what else ran.

With Gumbel noise, argmax(logits / T + noise) is a sample of softmax(logits / T); drawing the noise
by position makes draft and target, or two runs, use the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import torch

from kvpacket_store.generate.choice import Choice, best_kept, best_of
from kvpacket_store.generate.cutoffs import Cutoffs
from kvpacket_store.generate.options import GenerationOptions

__all__ = ["Sampler"]


class Sampler:
    """Chooses tokens for one request: repetition penalty, temperature, top-k, top-p, in this order.

    Parameters
    ----------
    temperature : float
        0 is greedy.
    seed : int or None
        None draws one; see ``seed``.
    top_k_tokens : int
        Choose among so many; 0 is off.
    top_p : float
        Choose among the first tokens that have this share of the probability; 1 is off.
    repetition_penalty : float
        Logits of tokens that occurred are divided by it, or times it where negative; 1 is off.

    Examples
    --------
    >>> Sampler(0.0).pick(torch.tensor([1.0, 3.0, 3.0]), position=0)
    1
    >>> a, b = Sampler(1.0, seed=3), Sampler(1.0, seed=3)
    >>> a.pick(torch.zeros(100), 5) == b.pick(torch.zeros(100), 5)
    True
    >>> Sampler(0.0, repetition_penalty=2.0).choose(torch.tensor([3.0, 2.0]), 0, previous=[0])
    Choice(token_id=1, margin=0.25)
    """

    def __init__(
        self,
        temperature: float,
        seed: int | None = None,
        *,
        top_k_tokens: int = 0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
    ) -> None:
        self.temperature = temperature
        self.seed: int | None = None
        if temperature > 0:
            self.seed = secrets.randbits(63) if seed is None else seed
        self.top_k_tokens = top_k_tokens
        self.top_p = top_p
        self.repetition_penalty = repetition_penalty

    @classmethod
    def of(cls, options: GenerationOptions) -> Sampler:
        """Return the sampler that a request asks for."""
        return cls(
            options.temperature,
            options.seed,
            top_k_tokens=options.sampling_top_k,
            top_p=options.top_p,
            repetition_penalty=options.repetition_penalty,
        )

    @property
    def looks_back(self) -> bool:
        """Whether a choice depends on ``previous``."""
        return self.repetition_penalty != 1.0

    def pick(self, logits: torch.Tensor, position: int, previous: Sequence[int] = ()) -> int:
        """Return the token id for ``position``, as `choose`."""
        return self.choose(logits, position, previous).token_id

    def choose(self, logits: torch.Tensor, position: int, previous: Sequence[int] = ()) -> Choice:
        """Return the token for ``position``.

        Parameters
        ----------
        logits : float [vocab]
            Of the row before it.
        position : int
            Keys the noise.
        previous : sequence of int
            All ids before ``position``, prompt included; read where `looks_back`.

        Raises
        ------
        ModelError
            The logits are not numbers.
        """
        scores = self._penalized(logits.float().cpu(), previous)
        if self.seed is None:
            token_id, gap = best_of(scores.numpy())
            return Choice(token_id, self._margin(gap))
        # the largest becomes 0: no temperature, however small, can overflow
        scaled = ((scores - scores.max()).double() / self.temperature).numpy()
        bits = np.random.Philox(key=self.seed, counter=[0, 0, 0, position])
        noisy = scaled + np.random.Generator(bits).gumbel(size=len(scaled))
        if self.top_k_tokens or self.top_p < 1:
            token_id, gap = best_kept(Cutoffs(scaled, self.top_k_tokens, self.top_p), scaled, noisy)
        else:
            token_id, gap = best_of(noisy)
        return Choice(token_id, self._margin(gap) * self.temperature)

    def _penalized(self, scores: torch.Tensor, previous: Sequence[int]) -> torch.Tensor:
        if not (self.looks_back and previous):
            return scores
        scores, seen = scores.double(), torch.tensor(previous)
        found = scores[seen]
        found = torch.where(
            found < 0, found * self.repetition_penalty, found / self.repetition_penalty
        )
        scores[seen] = found.clamp(-1e300, 1e300)  # no penalty, however small, gives infinities
        return scores

    def _margin(self, gap: float) -> float:
        """Return a gap between scores as what the logits may move."""
        penalty = self.repetition_penalty
        sampling = self.seed is not None
        if sampling and (self.temperature < 1e-300 or 1 - 1e-6 < self.top_p < 1):
            return 0.0  # doubles cannot tell how near it is
        if not 1e-100 < penalty < 1e100:
            return 0.0
        return gap / max(penalty, 1 / penalty)
