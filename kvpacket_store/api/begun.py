"""A request whose decoding has begun, and what can be told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvpacket_store.api.answer import DecodeInfo, Fallback
from kvpacket_store.generate import Answering, Draft, ModelDraft, VerifiedCounts
from kvpacket_store.generate.answering import Decoding
from kvpacket_store.models import SlotCache

if TYPE_CHECKING:
    from kvpacket_store.api.assembled import Assembled
    from kvpacket_store.api.swap_in import SwapIn

__all__ = ["Begun", "Drafting"]


@dataclass(slots=True)
class Drafting:
    """What a request drafts with.

    ``bits_per_scalar`` are those read from the store for a draft on the base, else those held.
    ``of_models`` are drafts by a model of their own.
    """

    draft: Draft
    bits_per_scalar: float | None = None
    kept_share: float | None = None
    caches: list[SlotCache] = field(default_factory=list)
    of_models: list[ModelDraft] = field(default_factory=list)

    @property
    def resident_bytes(self) -> int:
        """Bytes of what is drafted on."""
        on_views = sum(cache.resident_bytes for cache in self.caches)
        return on_views + sum(draft.resident_bytes for draft in self.of_models)

    def is_on(self, cache: SlotCache) -> bool:
        """Whether drafts use that very cache."""
        return any(own is cache for own in self.caches)


@dataclass(slots=True)
class Begun:
    """A request whose prompt is in slots: what gives its tokens, and what can be told of it."""

    assembled: Assembled
    answering: Answering
    decoding: Decoding
    counts: VerifiedCounts
    exact: SlotCache
    drafting: Drafting | None = None
    swap: SwapIn | None = None

    @property
    def has_exact(self) -> bool:
        """Whether the exact K and V are in memory now."""
        return self.exact.is_here

    @property
    def exact_bytes(self) -> int:
        """Bytes of the prompt's exact K and V with room for the answer."""
        return self.exact.whole_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes that this request holds while it drafts."""
        held = self.drafting.resident_bytes if self.drafting else 0
        return held + (self.exact_bytes if self.swap is None else 0)

    @property
    def held_bytes(self) -> int:
        """Bytes that this request holds now, exact K and V that came for a verification too."""
        return self.resident_bytes + (self.exact.resident_bytes if self.swap else 0)

    def fallbacks(self) -> list[Fallback]:
        """Return which packets had to be prefilled again."""
        return [*self.assembled.fallbacks, *(self.swap.fallbacks if self.swap else ())]

    def info(self, finish_reason: str) -> DecodeInfo:
        """Return what the answer says of its decoding."""
        counts, drafting = self.counts, self.drafting
        return DecodeInfo(
            mode="full" if drafting is None else "verified",
            exactness=self.answering.options.exactness,
            pinned=self.swap is None,
            rounds=counts.rounds,
            mean_accepted=counts.mean_accepted,
            draft_bits_per_scalar=drafting.bits_per_scalar if drafting else None,
            draft_tokens_kept_share=drafting.kept_share if drafting else None,
            guarded=counts.guarded,
            seed=self.answering.sampler.seed,
            finish_reason=finish_reason,
        )
