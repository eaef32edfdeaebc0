"""How a request is decoded: which draft, on which K and V, verified how."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.answer import DecodeInfo, Timings
from kvpacket_store.api.assembly import Assembled, Assembler, first_logits
from kvpacket_store.api.drafting import QUERY_ROWS, DraftPrompt, draft_cache, split_name
from kvpacket_store.api.swap_in import Link
from kvpacket_store.compress import parse_compressor
from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    ChainDraft,
    Costs,
    Draft,
    GenerationOptions,
    Horizon,
    KVDraft,
    LookupDraft,
    NoDraft,
    RowTarget,
    Sampler,
    SwapTarget,
    Target,
    TokenDraft,
    VerifiedCounts,
    plain_decoding,
    slots_for,
    verified_decoding,
)
from kvpacket_store.generate.answering import Decoding
from kvpacket_store.models import Model, SlotCache, observing_queries

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["Begun", "Decoder", "room_for"]

GUARD_LOGITS = 0.5
"""How far two forwards of other shapes may be apart, where rows are not alike: 16-bit products of
SmolLM2 differ by up to 0.44 in a logit (96 rows at 1,000 to 7,500 slots)."""

_DROPPED = "snapkv:0.25"
_LEAST_GAIN = 1.1  # below that, making the view takes longer than it saves
_LEAST_TOKENS = 48


def room_for(model: Model, options: GenerationOptions) -> int:
    """Return the slots to keep free behind a prompt: whole blocks, where rows are not alike."""
    if options.exactness == "bit" and not model.rows_are_alike:
        return slots_for(0, options.max_new_tokens)
    return options.max_new_tokens


@dataclass(slots=True)
class Begun:
    """A request whose prompt is in slots: what gives its tokens, and what can be told of it."""

    assembled: Assembled
    answering: Answering
    decoding: Decoding
    mode: str
    pinned: bool
    counts: VerifiedCounts = field(default_factory=VerifiedCounts)
    bits_per_scalar: float | None = None
    kept_share: float | None = None
    caches: Sequence[SlotCache] = ()

    def info(self, finish_reason: str) -> DecodeInfo:
        """Return what the answer says of its decoding."""
        counts = self.counts
        return DecodeInfo(
            mode=self.mode,
            exactness=self.answering.options.exactness,
            pinned=self.pinned,
            rounds=counts.rounds,
            mean_accepted=counts.mean_accepted,
            draft_bits_per_scalar=self.bits_per_scalar,
            draft_tokens_kept_share=self.kept_share,
            guarded=counts.guarded,
            seed=self.answering.sampler.seed,
            finish_reason=finish_reason,
        )
