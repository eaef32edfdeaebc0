"""Which slots matter: one function a published method, from a prompt to scores ``[L, H, T]``.

Larger is kept. Where NVIDIA's kvpress has the method too, the scores are the same numbers
(tests/conformance/test_conformance_kvpress.py).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from kvpacket_store.compress.observed import observed_attention, rows_that_see, window_queries
from kvpacket_store.compress.prompt import PromptKV
from kvpacket_store.errors import UsageError

__all__ = [
    "Scorer",
    "expected_scores",
    "h2o_scores",
    "importance_scores",
    "keydiff_scores",
    "knorm_scores",
    "random_scores",
    "scissorhands_scores",
    "snapkv_scores",
    "streaming_scores",
    "tova_scores",
]

Scorer = Callable[[PromptKV], torch.Tensor]
_SNAPKV_KERNEL = 5  # slots that lend each other their attention


def _by_layer(
    prompt: PromptKV, score: Callable[[torch.Tensor], torch.Tensor], num_rows: int | None = None
) -> torch.Tensor:
    """Score each layer's attention ``[H, G, Q, T]``: one layer's lies in memory at a time."""
    queries = window_queries(prompt)
    if num_rows is not None:
        queries = queries[:, :, -num_rows:]
    return torch.stack(
        [
            score(observed_attention(q, k, prompt.scaling))
            for q, k in zip(queries, prompt.k, strict=True)
        ]
    )


def _with_window(scores: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Put the window's own slots behind ``scores [H, T - Q]``, above all others."""
    top = float(scores.max()) + 1 if scores.numel() else 1.0
    return functional.pad(scores, (0, num_rows), value=top)


def snapkv_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by the question's mean attention, smoothed over 5 slots.

    The window is the rows that ``prompt.queries`` has.

    References
    ----------
    Li et al. 2024, arXiv:2404.14469.
    """

    def score(attention: torch.Tensor) -> torch.Tensor:
        rows = attention.shape[2]
        mean = attention[..., :-rows].mean(dim=2)
        if mean.numel():
            mean = functional.avg_pool1d(
                mean, _SNAPKV_KERNEL, padding=_SNAPKV_KERNEL // 2, stride=1
            )
        return _with_window(mean.mean(dim=1), rows)

    return _by_layer(prompt, score)


def tova_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by the last row's attention, mean over all heads of a layer.

    References
    ----------
    Oren et al. 2024, arXiv:2401.06104.
    """

    def score(attention: torch.Tensor) -> torch.Tensor:
        mean = attention[..., 0, :-1].flatten(0, 1).mean(dim=0)
        return _with_window(mean.expand(attention.shape[0], -1), 1)

    return _by_layer(prompt, score, num_rows=1)


def h2o_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by accumulated attention, over the number of given rows that see a slot.

    Without that division old slots win by age alone.

    References
    ----------
    Zhang et al. 2023, arXiv:2306.14048.
    """

    def score(attention: torch.Tensor) -> torch.Tensor:
        seen = rows_that_see(attention.shape[2], attention.shape[3], attention.device)
        return (attention.sum(dim=2) / seen).mean(dim=1)

    return _by_layer(prompt, score)


def scissorhands_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by how many rows of the window look at a slot more than at the mean slot.

    References
    ----------
    Liu et al. 2023, arXiv:2305.17118: persistence of importance, counted instead of summed.
    """

    def score(attention: torch.Tensor) -> torch.Tensor:
        rows, num_slots = attention.shape[2:]
        visible = torch.arange(num_slots - rows + 1, num_slots + 1, device=attention.device)
        return (attention * visible[:, None] > 1).sum(dim=(1, 2)).float()

    return _by_layer(prompt, score)


def expected_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by the attention that queries distributed like the question's would give, times |v|.

    For Gaussian queries, E[exp(q·k)] = exp(μ·k + k·Σk / 2).

    References
    ----------
    Devoto et al. 2025, arXiv:2510.00636. There the queries are the prompt's before RoPE, turned to
    positions to come; here they are the question's own.
    """
    queries = window_queries(prompt)
    layers, heads, num_slots, dim = prompt.k.shape
    scores = prompt.k.new_empty((layers, heads, num_slots), dtype=torch.float32)
    for index in range(layers):
        q = queries[index].float().view(heads, -1, queries.shape[2], dim) * prompt.scaling
        mean = q.mean(dim=2, keepdim=True)
        covariance = (q - mean).transpose(2, 3) @ (q - mean) / q.shape[2]
        k = prompt.k[index].float()[:, None]
        logits = (k * mean).sum(-1) + (k @ covariance * k).sum(-1) / 2
        scores[index] = logits.softmax(-1).mean(1) * prompt.v[index].float().norm(dim=-1)
    return scores


def keydiff_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by how unlike the mean direction of its head's keys a key is.

    References
    ----------
    Park et al. 2025, arXiv:2504.15364.
    """
    scores = []
    for layer in prompt.k:  # one layer's float32 at a time
        k = layer.float()
        mean = functional.normalize(k, dim=-1).mean(dim=1, keepdim=True)
        scores.append(-functional.cosine_similarity(k, mean, dim=-1))
    return torch.stack(scores)


def knorm_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by the key's norm, small ones first: they draw attention.

    References
    ----------
    Devoto et al. 2024, arXiv:2406.11430.

    Examples
    --------
    >>> k = torch.tensor([3.0, 4.0, 0.0, 1.0]).view(1, 1, 2, 2)
    >>> knorm_scores(PromptKV(k, k, scaling=1.0)).tolist()
    [[[-5.0, -1.0]]]
    """
    norms: torch.Tensor = torch.linalg.vector_norm(prompt.k, dim=-1, dtype=torch.float32)
    return -norms


def streaming_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by position: with the first slots always kept, sinks and the recent window.

    References
    ----------
    Xiao et al. 2023, arXiv:2309.17453.
    """
    slots = torch.arange(prompt.num_slots, dtype=torch.float32, device=prompt.k.device)
    return slots.expand(prompt.k.shape[:3])


def random_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by a hash of the position, the same in every head: the baseline of all droppers."""
    mixed = torch.arange(1, prompt.num_slots + 1, dtype=torch.int64, device=prompt.k.device)
    for _ in range(2):
        mixed = mixed * 2654435761 % 2**32  # Knuth's multiplier: 2³² over the golden ratio
        mixed ^= mixed >> 15
    # 24 bits, which float32 holds exactly
    return (mixed >> 8).float().expand(prompt.k.shape[:3])


def importance_scores(prompt: PromptKV) -> torch.Tensor:
    """Score by the importance that was stored with the packets.

    References
    ----------
    Kim et al. 2025 (KVzip), arXiv:2505.23416, is one way to compute it.
    """
    if prompt.importance is None:
        raise UsageError(
            "this compressor judges by the importance of tokens, which these packets were not "
            "stored with; prefill them with it, or choose snapkv, keydiff or knorm"
        )
    return prompt.importance
