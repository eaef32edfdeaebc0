"""From scores to kept positions: the n largest of each head, of equal ones the lowest."""

from __future__ import annotations

import torch

__all__ = ["kept_count", "kept_positions"]


def kept_count(num_slots: int, share: float, always: int) -> int:
    """Return how many of ``num_slots`` are kept: the share, but no fewer than ``always``, and one.

    Examples
    --------
    >>> kept_count(100, 0.25, 8), kept_count(20, 0.1, 8), kept_count(5, 0.1, 8)
    (25, 8, 5)
    """
    return min(num_slots, max(round(share * num_slots), always, 1))


def kept_positions(scores: torch.Tensor, count: int, first: int, recent: int) -> torch.Tensor:
    """Return the ``count`` positions of the largest scores, ascending.

    Parameters
    ----------
    scores : float [..., T]
        Larger is kept; NaN is kept last.
    count : int
        How many, 1 to T, and at least ``first + recent`` where there are so many slots.
    first, recent : int
        Positions from the start and from the end that are kept whatever their score.

    Returns
    -------
    torch.Tensor
        int64 ``[..., count]``.

    Examples
    --------
    >>> kept_positions(torch.tensor([0.1, 0.7, 0.7, 0.9, 0.0]), 3, 0, 1).tolist()
    [1, 3, 4]
    """
    num_slots = scores.shape[-1]
    lowest, highest = torch.finfo(torch.float32).min, torch.finfo(torch.float32).max
    ranked = scores.float().clamp(lowest, highest).masked_fill(scores.isnan(), float("-inf"))
    ranked[..., :first] = float("inf")
    ranked[..., max(num_slots - recent, 0) :] = float("inf")
    # topk promises nothing about equal scores; a stable sort leaves the lowest position first
    order = ranked.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :count].sort(dim=-1).values
