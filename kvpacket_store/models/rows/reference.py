"""What the kernels compute, to be read. Sums may round otherwise: they agree closely, not in bits.

What is promised in bits is that a row's result does not depend on the rows beside it, and that is
tested on the kernels themselves.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["attend", "gate_up", "linear", "norm", "rotated", "widened"]

_Floats: TypeAlias = npt.NDArray[Any]


def widened(weight: _Floats) -> _Floats:
    """Return bf16 bits (uint16) or fp32 as fp32.

    Examples
    --------
    >>> widened(np.array([0x3F80, 0xC000], np.uint16)).tolist()
    [1.0, -2.0]
    """
    if weight.dtype != np.uint16:
        return weight.astype(np.float32)
    bits: _Floats = weight.astype(np.uint32) << 16
    return bits.view(np.float32)


def linear(x: _Floats, weight: _Floats, bias: _Floats) -> _Floats:
    """Return ``x [M, K] @ weight [N, K].T + bias [N]``; an empty bias is none."""
    mapped: _Floats = x @ widened(weight).T
    return np.asarray(mapped + bias) if bias.size else mapped


def gate_up(x: _Floats, gate: _Floats, up: _Floats) -> _Floats:
    """Return ``silu(x @ gate.T) * (x @ up.T)``."""
    opened: _Floats = x @ widened(gate).T
    return np.asarray(opened / (1 + np.exp(-opened)) * (x @ widened(up).T))


def norm(x: _Floats, weight: _Floats, eps: float) -> _Floats:
    """Return each row divided by its root mean square, times ``weight``."""
    mean_squares = (x * x).mean(axis=-1, keepdims=True)
    return np.asarray(weight * x / np.sqrt(mean_squares + np.float32(eps)))


def rotated(x: _Floats, cos: _Floats, sin: _Floats) -> _Floats:
    """Rotate ``x [Q, H, D]`` by ``cos, sin [Q, D]``, halves apart (Su et al. 2021, eq. 34)."""
    first, second = np.split(x, 2, axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    return np.asarray(x * cos[:, None] + turned * sin[:, None])


def attend(
    q: _Floats, k_slots: _Floats, v_slots: _Floats, first_slot: int, scaling: float
) -> _Floats:
    """Attend with ``q [Q, Hq, D]`` to slots ``[H, N, D]``; row i sees up to ``first_slot + i``."""
    out = np.empty_like(q)
    group = q.shape[1] // k_slots.shape[0]
    for m in range(q.shape[0]):
        end = first_slot + m + 1
        for h in range(q.shape[1]):
            scores = k_slots[h // group, :end] @ q[m, h] * np.float32(scaling)
            weights = np.exp(scores - scores.max())
            out[m, h] = (weights / weights.sum()) @ v_slots[h // group, :end]
    return out
