"""Attention by another rule than the slots' own: for baselines, and for looking at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

__all__ = ["AttentionCall", "AttentionRule", "attending", "attention_rule", "plain_attention"]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one layer's attention is asked for.

    Parameters
    ----------
    layer : int
        Which.
    query : float [B, Hq, Q, D]
        Rotated queries of the rows that run.
    key, value : float [B, H, T, D]
        All filled slots, the rows' own among them.
    scaling : float
        Factor of q·k.
    window : int or None
        How many slots back a row of this layer sees; None: all.
    """

    layer: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float
    window: int | None


class AttentionRule(Protocol):
    """Attention in the place of `grouped_attention`'s."""

    def __call__(self, call: AttentionCall, /) -> torch.Tensor:
        """Return the mixed values, ``[B, Hq, Q, D]``."""
        ...


_rule: ContextVar[AttentionRule | None] = ContextVar("attention_rule", default=None)


@contextmanager
def attending(rule: AttentionRule | None) -> Iterator[None]:
    """Let forwards in this block attend by ``rule``; None: by the slots' own.

    Examples
    --------
    >>> with attending(lambda call: call.query):
    ...     attention_rule() is None
    False
    """
    token = _rule.set(rule)
    try:
        yield
    finally:
        _rule.reset(token)


def attention_rule() -> AttentionRule | None:
    """Return the rule in force."""
    return _rule.get()


def plain_attention(call: AttentionCall, mask: torch.Tensor) -> torch.Tensor:
    """Attend where ``mask``, bool ``[Q, T]``, is true."""
    return functional.scaled_dot_product_attention(
        call.query,
        call.key,
        call.value,
        attn_mask=mask,
        scale=call.scaling,
        enable_gqa=True,
    )
