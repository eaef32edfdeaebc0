"""What an arm is: work before the request, then a prompt in slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kvpacket_store.models import AttentionRule, SlotCache
from kvpacket_store.quality.packets import Span
from kvpacket_store.types import TokenIds

__all__ = ["ALWAYS", "ARMS", "ArmSettings", "Ready", "Start"]

ARMS = ("full", "naive", "packet", "none", "epic", "cacheblend", "ape")
ALWAYS = ("full", "naive", "none")
"""What every report needs: the target, the floor, and what the model knows by itself."""


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """How the baselines run.

    Parameters
    ----------
    epic_tokens : int
        First tokens of every packet that EPIC recomputes.
    cacheblend_share : float
        Share of document tokens that CacheBlend recomputes, 0 to 1.
    cacheblend_layer : int
        Where it looks for the deviation of V; 1 is the second layer, as in the paper.
    ape_prefix : bool
        Whether APE prefills every packet behind the preamble, at positions that all share.
    ape_temperature, ape_scale : float
        Of APE's attention to packets; 1 and 1 change nothing.
    """

    epic_tokens: int = 16
    cacheblend_share: float = 0.15
    cacheblend_layer: int = 1
    ape_prefix: bool = True
    ape_temperature: float = 0.9
    ape_scale: float = 0.9

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Ready:
    """A prompt in slots; ``input_ids`` have not run.

    Parameters
    ----------
    cache : SlotCache
        With room for the answer.
    input_ids : tuple of int
        What the first forward runs: the question, or all of the prompt.
    flops : int
        Until the first token, that forward included.
    recomputed_tokens : int
        Document tokens that ran in this request.
    spans : tuple of Span
        What lies where, the question included.
    rule : AttentionRule or None
        How rows attend from here on.
    """

    cache: SlotCache
    input_ids: TokenIds
    flops: int
    recomputed_tokens: int
    spans: tuple[Span, ...]
    rule: AttentionRule | None = None


Start: TypeAlias = Callable[[], Ready]
"""What a request costs."""
