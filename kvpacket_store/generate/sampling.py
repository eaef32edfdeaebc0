"""Logits → token id. Noise is keyed by (seed, position): a token does not depend on what else ran.

With Gumbel noise, argmax(logits / T + noise) is a sample of softmax(logits / T); drawing the noise
by position makes draft and target, or two runs, use the same.
"""

from __future__ import annotations

import secrets

import numpy as np
import torch

__all__ = ["Sampler"]


class Sampler:
    """Chooses tokens for one request.

    Parameters
    ----------
    temperature : float
        0 is greedy.
    seed : int or None
        None draws one; see ``seed``.

    Examples
    --------
    >>> Sampler(0.0).pick(torch.tensor([1.0, 3.0, 3.0]), position=0)
    1
    >>> a, b = Sampler(1.0, seed=3), Sampler(1.0, seed=3)
    >>> a.pick(torch.zeros(100), 5) == b.pick(torch.zeros(100), 5)
    True
    """

    def __init__(self, temperature: float, seed: int | None = None) -> None:
        self.temperature = temperature
        self.seed: int | None = None
        if temperature > 0:
            self.seed = secrets.randbits(63) if seed is None else seed

    def pick(self, logits: torch.Tensor, position: int) -> int:
        """Return the token id for ``position``, given logits ``[vocab]``."""
        scores = logits.float()
        if self.seed is not None:
            bits = np.random.Philox(key=self.seed, counter=[0, 0, 0, position])
            noise = np.random.Generator(bits).gumbel(size=scores.shape[0])
            # the largest becomes 0: no temperature, however small, can overflow
            scores = (scores - scores.max()).cpu().double() / self.temperature
            scores += torch.from_numpy(noise)
        # argmax may return any of several equal maxima; the lowest id is the promise
        return int((scores == scores.max()).nonzero()[0])
