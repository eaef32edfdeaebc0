"""Importance without a second forward: a linear map a head, from its K and V to log-importance.

Source: KVzap (kvpress), which maps hidden states; packets hold K and V, and no hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from kvpacket_store.compress.prompt import PromptKV
from kvpacket_store.compress.scorers import importance_scores
from kvpacket_store.errors import UsageError

__all__ = ["ImportanceMap"]

_SMALLEST = 1e-8  # importance below this is not told from none


def _features(prompt: PromptKV, index: int) -> torch.Tensor:
    """Return float64 ``[H, T, 2D + 1]``: K before RoPE where that can be had, V, and 1."""
    rows = prompt.layer(index, None)
    k = rows.k
    if rows.rope is not None:
        k = rows.rope.remove(k, rows.slots, index)
    return torch.cat([k, rows.v, torch.ones_like(k[..., :1])], dim=-1).double()


@dataclass(frozen=True, slots=True)
class ImportanceMap:
    """A scorer with fitted weights.

    Parameters
    ----------
    weights : float64 [L, H, 2D + 1]
        Of K, of V, and the constant.

    Examples
    --------
    >>> k, v = torch.randn(2, 1, 1, 50, 4, generator=torch.Generator().manual_seed(0))
    >>> told = PromptKV(k, v, scaling=0.5, importance=v[..., 0].exp())
    >>> fitted = ImportanceMap.fit([told], ridge=1e-6)
    >>> torch.allclose(fitted(PromptKV(k, v, scaling=0.5)), v[..., 0], atol=1e-3)
    True
    """

    weights: torch.Tensor

    def __call__(self, prompt: PromptKV) -> torch.Tensor:
        """Return log-importance, float32 ``[L, H, T]``."""
        layers, heads, _, dim = prompt.k.shape
        if self.weights.shape != (layers, heads, 2 * dim + 1):
            raise UsageError(
                f"the importance map is {list(self.weights.shape)} and k {list(prompt.k.shape)}; "
                "they are of two models"
            )
        scores = [
            (_features(prompt, index) @ self.weights[index].to(prompt.k.device)[..., None])[..., 0]
            for index in range(layers)
        ]
        return torch.stack(scores).float()

    @classmethod
    def fit(cls, prompts: Iterable[PromptKV], ridge: float = 1.0) -> ImportanceMap:
        """Fit by ridge regression on prompts that have their importance.

        Parameters
        ----------
        prompts : iterable of PromptKV
            Of one model, at least one.
        ridge : float
            Weight of the squared coefficients.
        """
        moments: list[tuple[torch.Tensor, torch.Tensor]] = []
        for prompt in prompts:
            target = importance_scores(prompt).double().clamp(min=_SMALLEST).log()
            for index, wanted in enumerate(target):
                x = _features(prompt, index)
                own = (x.transpose(1, 2) @ x, x.transpose(1, 2) @ wanted[..., None])
                if index == len(moments):
                    moments.append(own)
                else:
                    moments[index] = (moments[index][0] + own[0], moments[index][1] + own[1])
        if not moments:
            raise UsageError("an importance map is fitted to at least one prompt")
        gram, wanted = (torch.stack(part) for part in zip(*moments, strict=True))
        penalty = ridge * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        penalty[-1, -1] = 0  # the constant is free
        return cls(torch.linalg.solve(gram + penalty, wanted)[..., 0])
