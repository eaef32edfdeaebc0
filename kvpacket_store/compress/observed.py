"""How a prompt's last rows attend to its keys: what most token droppers judge by."""

from __future__ import annotations

import torch

from kvpacket_store.compress.prompt import PromptKV
from kvpacket_store.errors import UsageError

__all__ = ["observed_attention", "rows_that_see", "window_queries"]


def window_queries(prompt: PromptKV) -> torch.Tensor:
    """Return the prompt's queries ``[L, Hq, Q, D]``, or say that they are missing."""
    if prompt.queries is None:
        raise UsageError(
            "this compressor judges by the question's attention; hand it the question's queries, "
            "or choose one that does not: knorm, keydiff, streaming, importance"
        )
    return prompt.queries


def rows_that_see(num_rows: int, num_slots: int, device: torch.device) -> torch.Tensor:
    """Return how many of the last ``num_rows`` rows see each slot, int64 ``[T]``.

    Examples
    --------
    >>> rows_that_see(2, 4, torch.device("cpu")).tolist()
    [2, 2, 2, 1]
    """
    return torch.arange(num_slots, 0, -1, device=device).clamp(max=num_rows)


def observed_attention(q: torch.Tensor, k: torch.Tensor, scaling: float) -> torch.Tensor:
    """Return the attention of the last rows of a prompt over its slots, in float32.

    Parameters
    ----------
    q : float [Hq, Q, D]
        Rotated queries of the last Q rows; row i sees slots up to ``T - Q + i``.
    k : float [H, T, D]
        Rotated keys.
    scaling : float
        Factor of q·k.

    Returns
    -------
    torch.Tensor
        ``[H, Hq / H, Q, T]``; a row sums to 1.

    Examples
    --------
    >>> observed_attention(torch.zeros(2, 2, 3), torch.zeros(1, 4, 3), 1.0)[0, 0].round(decimals=2)
    tensor([[0.3300, 0.3300, 0.3300, 0.0000],
            [0.2500, 0.2500, 0.2500, 0.2500]])
    """
    heads, num_slots, dim = k.shape
    rows = q.shape[1]
    grouped = q.float().view(heads, -1, rows, dim)
    logits = grouped @ k.float().transpose(1, 2)[:, None] * scaling
    row = torch.arange(num_slots - rows, num_slots, device=k.device)[:, None]
    hidden = torch.arange(num_slots, device=k.device) > row
    return logits.masked_fill(hidden, float("-inf")).softmax(dim=-1)
