"""The one compressor: token droppers, one after the other, and at most one quantiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvpacket_store.compress.plan import DraftView, Plan
from kvpacket_store.compress.prompt import PromptKV, take_slots
from kvpacket_store.compress.quantisers import Quantiser
from kvpacket_store.compress.scorers import Scorer
from kvpacket_store.compress.select import kept_count, kept_positions
from kvpacket_store.compress.views import DenseView, PackedView

__all__ = ["ProductCompressor", "TokenDropper"]


@dataclass(frozen=True, slots=True)
class TokenDropper:
    """Keeps the slots of every head that score highest.

    Parameters
    ----------
    score : Scorer
        Larger is kept.
    share : float
        Share of slots to keep, above 0, up to 1.
    """

    score: Scorer
    share: float

    def kept(self, prompt: PromptKV) -> torch.Tensor | None:
        """Return kept positions, int64 ``[L, H, n]``, or None where all are kept."""
        always = prompt.first + prompt.recent
        count = kept_count(prompt.num_slots, self.share, always)
        if count == prompt.num_slots:
            return None
        return kept_positions(self.score(prompt), count, prompt.first, prompt.recent)


@dataclass(frozen=True, slots=True)
class ProductCompressor:
    """Drop, then quantise what is left; with neither, the exact rows themselves.

    Parameters
    ----------
    name : str
        As it was parsed.
    droppers : tuple of TokenDropper
        Each judges what those before it left.
    quantiser : Quantiser or None
        Of the kept rows.

    Examples
    --------
    >>> from kvpacket_store.compress import parse_compressor
    >>> k, v = torch.randn(2, 1, 2, 40, 8, generator=torch.Generator().manual_seed(0))
    >>> prompt = PromptKV(k, v, scaling=0.35, first=1, recent=1)
    >>> compressor = parse_compressor("knorm:0.25*int8")
    >>> plan = compressor.plan(prompt)
    >>> plan.positions.shape, plan.kept_share, plan.k_bits
    (torch.Size([1, 2, 10]), 0.25, 8.0)
    >>> view = compressor.draft_view(prompt, plan)
    >>> view.layer(0)[0].shape, view.bits_per_scalar
    (torch.Size([2, 10, 8]), (3.0, 3.0))
    """

    name: str
    droppers: tuple[TokenDropper, ...]
    quantiser: Quantiser | None

    def plan(self, prompt: PromptKV) -> Plan:
        """Decide what to keep; see ``Compressor.plan``."""
        positions, rest = None, prompt
        for dropper in self.droppers:
            kept = dropper.kept(rest)
            if kept is not None:
                positions = kept if positions is None else positions.gather(-1, kept)
                rest = rest.narrowed(kept)
        dtype = prompt.k.dtype
        bits = float(8 * dtype.itemsize if self.quantiser is None else self.quantiser.bits(dtype))
        return Plan(positions, bits, bits, rest.num_slots / prompt.num_slots)

    def draft_view(self, prompt: PromptKV, plan: Plan) -> DraftView:
        """Make the view; see ``Compressor.draft_view``."""
        quantiser, positions = self.quantiser, plan.positions
        if quantiser is not None:
            return PackedView(
                tuple(quantiser.pack(prompt.layer(i, positions)) for i in range(len(prompt.k))),
                positions,
                prompt.num_slots if positions is None else positions.shape[-1],
                prompt.k.numel(),
            )
        k, v = prompt.k, prompt.v
        if positions is not None:
            k, v = take_slots(k, positions), take_slots(v, positions)
        return DenseView(k, v, positions, prompt.num_slots)
