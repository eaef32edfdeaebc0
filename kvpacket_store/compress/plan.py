"""The two halves of a compressor: what it would keep, and the draft view made from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kvpacket_store.compress.prompt import PromptKV
from kvpacket_store.models import CodedSlots

__all__ = ["Compressor", "DraftView", "Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compressor keeps of a prompt.

    Parameters
    ----------
    positions : int64 [L, H, n] or None
        Kept slots, ascending; heads may keep different ones, but all keep n. None: every slot.
    k_bits, v_bits : float
        Bits of a kept scalar's code, without scales and levels.
    kept_share : float
        n / T.
    """

    positions: torch.Tensor | None
    k_bits: float
    v_bits: float
    kept_share: float


class DraftView(Protocol):
    """A prompt's K and V, made small for drafting (``exact`` alone shares their memory)."""

    @property
    def positions(self) -> torch.Tensor | None:
        """Kept slots, int64 ``[L, H, n]``, ascending; None where all are kept."""
        ...

    @property
    def num_slots(self) -> int:
        """Rows n that a head holds."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors it holds: codes, scales, levels, positions."""
        ...

    @property
    def bits_per_scalar(self) -> tuple[float, float]:
        """Bits held for K, and for V, over all L·H·T·D scalars of the *whole* prompt.

        Scales, levels and outliers count, ``positions`` do not. A quarter of the slots kept in
        bf16 is 4 bits.
        """
        ...

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's K and V, ``[H, n, D]`` each, in the prompt's dtype."""
        ...

    def coded(self, index: int) -> tuple[CodedSlots, CodedSlots] | None:
        """Return the same as bytes, where they are held so that row kernels can read them."""
        ...


class Compressor(Protocol):
    """Makes draft views. Equal prompts give equal bits."""

    @property
    def name(self) -> str:
        """As ``parse_compressor`` takes it."""
        ...

    def plan(self, prompt: PromptKV) -> Plan:
        """Decide what to keep.

        Raises
        ------
        UsageError
            The prompt lacks what this compressor judges by.
        """
        ...

    def draft_view(self, prompt: PromptKV, plan: Plan) -> DraftView:
        """Make the view that ``plan``, of this compressor and prompt, describes."""
        ...
