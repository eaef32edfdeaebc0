"""How a request is decoded: which draft, on which K and V, verified how."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.answer import Timings
from kvpacket_store.api.assembled import Assembled
from kvpacket_store.api.assembly import Assembler, first_logits
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.costs import costs_of
from kvpacket_store.api.draft_maker import DraftGround, DraftMaker
from kvpacket_store.api.draft_model import DraftModel
from kvpacket_store.api.drafting import (
    BASE,
    LOOKUP,
    MODEL,
    QUERY_ROWS,
    WHOLE,
    draft_slots,
    split_name,
)
from kvpacket_store.api.exactness import exactness_of
from kvpacket_store.api.swap_in import SwapIn, SwapPolicy
from kvpacket_store.assemble import AssemblyPlan
from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    GenerationOptions,
    NoDraft,
    RowTarget,
    Sampler,
    SwapTarget,
    Target,
    VerifiedCounts,
    plain_decoding,
    slots_for,
    verified_decoding,
)
from kvpacket_store.models import Model, SlotCache, SwapCache, observing_queries

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["Decoder", "room_for"]

_DROPPED = "snapkv:0.25"
_LEAST_GAIN = 1.15  # below that, making the view takes longer than it saves
_LEAST_TOKENS = 48
_DROPPED_SHARE = 0.85  # of drafts on a quarter of the tokens that are accepted, one after the other


def room_for(model: Model, options: GenerationOptions) -> int:
    """Return the slots to keep free behind a prompt: whole blocks, where rows are not alike."""
    if options.exactness == "bit" and not model.rows_are_alike:
        return slots_for(0, options.max_new_tokens)
    return options.max_new_tokens


class Decoder:
    """Begins the decoding of one store's requests.

    Parameters
    ----------
    store : Store
        Whose model decodes.
    assembler : Assembler
        Makes slots for exact K and V.
    draft_model : DraftModel, optional
        Drafts where a request names nothing else.
    """

    def __init__(
        self, store: Store, assembler: Assembler, draft_model: DraftModel | None = None
    ) -> None:
        self._store = store
        self._assembler = assembler
        self._maker = DraftMaker(store, assembler.importance, draft_model)
        self.policy = SwapPolicy()

    def compressor_of(self, options: GenerationOptions) -> str | None:
        """Return the name of what a request drafts on; None where that is decided later, or never.

        Raises
        ------
        UsageError
            No compressor has that name.
        """
        if options.compressor is not None:
            self._maker.check(options.compressor)
        if options.decode == "full":
            return None
        if options.compressor is not None or options.decode == "auto":
            return options.compressor
        if self._maker.has_model:
            return MODEL
        if options.consistency == "recompute":
            return WHOLE
        return BASE if self._store.meta.layers > 1 else _DROPPED

    def drafts_on_packets(self, options: GenerationOptions) -> bool:
        """Whether packets are assembled to draft for a joint prefill."""
        if options.decode == "full" or options.consistency != "recompute":
            return False
        return any(part not in (LOOKUP, MODEL) for part in self._parts(options))

    def from_base(self, options: GenerationOptions) -> bool:
        """Whether a request's packets are assembled from their bases."""
        if options.consistency != "packet" and not self.drafts_on_packets(options):
            return False
        return any(split_name(part)[0] for part in self._parts(options))

    def draft_slots(self, options: GenerationOptions, plan: AssemblyPlan) -> int:
        """Return about how many slots a request's drafts take, at most."""
        if options.decode == "full":
            return 0
        name = self.compressor_of(options) or _DROPPED  # which is what `auto` takes at most
        room = room_for(self._store.model, options)
        return sum(draft_slots(part, plan, room) for part in name.split("+"))

    def _parts(self, options: GenerationOptions) -> list[str]:
        name = self.compressor_of(options)
        return [] if name is None else name.split("+")

    def begin(
        self,
        namespace: str,
        assembled: Assembled,
        options: GenerationOptions,
        timings: Timings,
        cancel: threading.Event | None = None,
        policy: SwapPolicy | None = None,
    ) -> Begun:
        """Run the question, and return what gives the answer's tokens."""
        answering = Answering(
            Sampler.of(options),
            options,
            assembled.prompt_token_ids,
            self._store.model.eos_ids,
            cancel,
        )
        if assembled.swap_parts:
            policy = policy or self.policy
            cache, swap = self._assembler.swap_in(namespace, assembled, policy)
            return self._swapped(assembled, answering, timings, cache, swap)
        with observing_queries(QUERY_ROWS) as queries:
            logits = first_logits(self._store, assembled, timings)
        counts = VerifiedCounts()
        target = self._target(options, counts)(assembled.cache, logits)
        if assembled.draft is not None:
            return self._from_packets(assembled, answering, target, counts)
        name = self.compressor_of(options) or self._worth_drafting_on(assembled, options)
        if name is None:
            decoding = plain_decoding(answering, assembled.cache, logits)
            if isinstance(target, BlockTarget):
                decoding = verified_decoding(answering, target, NoDraft(), VerifiedCounts())
            return Begun(assembled, answering, decoding, counts, assembled.cache)
        ground = DraftGround(assembled, queries, assembled.prompt_token_ids)
        drafting = self._maker.drafting(name, ground, options)
        decoding = verified_decoding(answering, target, drafting.draft, counts)
        return Begun(assembled, answering, decoding, counts, assembled.cache, drafting)

    def _from_packets(
        self,
        assembled: Assembled,
        answering: Answering,
        target: Target,
        counts: VerifiedCounts,
    ) -> Begun:
        """Draft on packets for a target without: a joint prefill of the same tokens.

        Positions differ by the soft tokens, so the draft keeps rows of its own.
        """
        packets, options = assembled.draft, answering.options
        assert packets is not None  # noqa: S101 - the caller's condition
        with observing_queries(QUERY_ROWS) as queries:
            logits = first_logits(self._store, packets, Timings())
        ids = assembled.prompt_token_ids
        ground = DraftGround(packets, queries, ids, logits, is_apart=True)
        drafting = self._maker.drafting(self.compressor_of(options) or WHOLE, ground, options)
        if not drafting.is_on(packets.cache):
            packets.cache.free()
        decoding = verified_decoding(answering, target, drafting.draft, counts)
        return Begun(assembled, answering, decoding, counts, assembled.cache, drafting)

    def _swapped(
        self,
        assembled: Assembled,
        answering: Answering,
        timings: Timings,
        cache: SwapCache,
        swap: SwapIn,
    ) -> Begun:
        """Draft on what the base gives, while the exact K and V are on their way."""
        options, counts = answering.options, VerifiedCounts()
        swap.fetch()
        with observing_queries(QUERY_ROWS) as queries:
            logits = first_logits(self._store, assembled, timings)
        make = self._target(options, counts)
        target = SwapTarget(cache, swap, assembled.question_ids, make)
        name = self.compressor_of(options) or BASE
        ground = DraftGround(assembled, queries, assembled.prompt_token_ids, logits)
        drafting = self._maker.drafting(name, ground, options)
        if not drafting.is_on(assembled.cache):
            assembled.cache.free()
        decoding = verified_decoding(answering, target, drafting.draft, counts)
        return Begun(assembled, answering, decoding, counts, cache, drafting, swap)

    def _target(
        self, options: GenerationOptions, counts: VerifiedCounts
    ) -> Callable[[SlotCache, torch.Tensor], Target]:
        """Return what makes the target that keeps the promise asked for on this machine."""
        if self._store.model.rows_are_alike:
            return lambda cache, logits: RowTarget(cache, logits, counts)
        if options.exactness == "bit":
            return BlockTarget
        guard = self._guard_logits
        return lambda cache, logits: RowTarget(cache, logits, counts, guard_logits=guard)

    @cached_property
    def _guard_logits(self) -> float:
        return exactness_of(self._store.model).guard_logits

    def _worth_drafting_on(self, assembled: Assembled, options: GenerationOptions) -> str | None:
        """Return what ``decode="auto"`` drafts with where the exact K and V are in memory."""
        if options.decode == "full" or options.max_new_tokens < _LEAST_TOKENS:
            return None
        if self._maker.has_model and options.max_new_tokens >= assembled.prompt_tokens:
            return MODEL  # else its own prefill of the prompt could take a twentieth of the time
        if options.consistency != "packet" or not self._store.model.rows_are_alike:
            return None
        slots = assembled.plan.prompt_positions
        costs = costs_of(self._store.model, slots, slots // 4)
        gain = max(costs.speedup(_DROPPED_SHARE, count) for count in range(17))
        return f"{LOOKUP}+{_DROPPED}" if gain > _LEAST_GAIN else LOOKUP
