"""Rotate keys that come rotated from elsewhere by a difference of positions.

Our own packets never need it: they hold keys before RoPE (docs/adr/0002).
"""

from __future__ import annotations

import torch

__all__ = ["rope_shift"]


def rope_shift(k: torch.Tensor, delta: int | torch.Tensor, inv_freq: torch.Tensor) -> torch.Tensor:
    """Move rotated keys by ``delta`` positions.

    RoPE rotations compose, R(p + d) = R(d) R(p), so this is one more rotation. It rounds once more
    in ``k``'s dtype: the result is *close* to direct prefill at the new position, not equal. A
    model's attention scaling (YaRN) is in ``k`` already and stays as it is.

    Parameters
    ----------
    k : float [..., T, D]
        Keys after RoPE, half-split (NeoX) order. Only the first ``2 * len(inv_freq)`` dimensions
        are rotated (Phi3 rotates a part).
    delta : int, or int64 [T]
        New minus old position, tokens.
    inv_freq : float32 [rotary_dim / 2]
        Radians a position: ``model.rotaries[name].inv_freq``.

    Returns
    -------
    torch.Tensor
        Like ``k``. Computed in float32: bf16 cannot hold every position above 256.

    References
    ----------
    Su et al. 2021, arXiv:2104.09864, eq. 15.

    Examples
    --------
    >>> k = torch.tensor([[1.0, 0.0]])
    >>> quarter_turn = torch.tensor([torch.pi / 2])
    >>> rope_shift(k, 1, quarter_turn).round().abs()
    tensor([[0., 1.]])
    >>> torch.equal(rope_shift(k, 0, quarter_turn), k)
    True
    """
    tokens, rotary_dim = k.shape[-2], 2 * inv_freq.shape[0]
    steps = torch.as_tensor(delta, device=k.device).expand(tokens)
    # float64: at position 100,000 a float32 product is off by 0.004 radian in the fastest pair
    angles = steps.double()[:, None] * inv_freq.to(k.device).double()
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = k[..., :rotary_dim].float().chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([rotated.to(k.dtype), k[..., rotary_dim:]], dim=-1)
