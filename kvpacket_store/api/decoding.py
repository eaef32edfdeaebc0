"""How a request is decoded: which draft, on which K and V, verified how."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.answer import Timings
from kvpacket_store.api.assembled import Assembled
from kvpacket_store.api.assembly import Assembler, first_logits
from kvpacket_store.api.begun import Begun, Drafting
from kvpacket_store.api.costs import costs_of
from kvpacket_store.api.drafting import BASE, QUERY_ROWS, DraftPrompt, draft_cache, split_name
from kvpacket_store.api.exactness import exactness_of
from kvpacket_store.api.importance_maps import map_of
from kvpacket_store.api.swap_in import SwapIn, SwapPolicy
from kvpacket_store.compress import (
    DenseView,
    ImportanceMap,
    parse_compressor,
    takes_importance,
    takes_map,
)
from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    ChainDraft,
    Draft,
    FixedHorizon,
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
from kvpacket_store.models import Model, SlotCache, SwapCache, observing_queries

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["LOOKUP", "Decoder", "room_for"]

LOOKUP = "lookup"
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
    """

    def __init__(self, store: Store, assembler: Assembler) -> None:
        self._store = store
        self._assembler = assembler
        self.policy = SwapPolicy()

    def compressor_of(self, options: GenerationOptions) -> str | None:
        """Return the name of what a request drafts on; None where that is decided later, or never.

        Raises
        ------
        UsageError
            No compressor has that name.
        """
        if options.compressor is not None:
            for part in options.compressor.split("+"):
                if part != LOOKUP:
                    name = split_name(part)[1]
                    parse_compressor(name, self._map_for(name))
        if options.decode != "verified":
            return None if options.decode == "full" else options.compressor
        return options.compressor or (BASE if self._store.meta.layers > 1 else _DROPPED)

    def _map_for(self, name: str) -> ImportanceMap | None:
        return map_of(self._store) if takes_map(name) else None

    def from_base(self, options: GenerationOptions) -> bool:
        """Whether a request's prompt is assembled from the base of its packets."""
        name = self.compressor_of(options)
        if name is None or options.consistency != "packet":
            return False
        return any(split_name(part)[0] for part in name.split("+"))

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
        drafting = self._drafting(name, assembled, options, queries)
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
        packets = assembled.draft
        assert packets is not None  # noqa: S101 - the caller's condition
        logits = first_logits(self._store, packets, Timings())
        options, slots = answering.options, packets.plan.prompt_positions
        horizon = self._horizon(options, slots, slots)
        draft = KVDraft(packets.cache, horizon, logits, takes_rows=False)
        bits = 8.0 * self._store.kv_dtype.bits_dtype.itemsize
        drafting = Drafting(draft, bits, 1.0, [packets.cache])
        decoding = verified_decoding(answering, target, draft, counts)
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
        drafting = self._drafting(name, assembled, options, queries, logits)
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
        if options.consistency != "packet" or not self._store.model.rows_are_alike:
            return None
        slots = assembled.plan.prompt_positions
        costs = costs_of(self._store.model, slots, slots // 4)
        gain = max(costs.speedup(_DROPPED_SHARE, count) for count in range(17))
        return f"{LOOKUP}+{_DROPPED}" if gain > _LEAST_GAIN else LOOKUP

    def _drafting(
        self,
        name: str,
        assembled: Assembled,
        options: GenerationOptions,
        queries: list[torch.Tensor],
        logits: torch.Tensor | None = None,
    ) -> Drafting:
        """Make drafts by name; ``logits`` where they may start before the target."""
        model, slots = self._store.model, assembled.plan.prompt_positions
        drafts: list[Draft] = []
        found = Drafting(NoDraft())
        for part in name.split("+"):
            if part == LOOKUP:
                costs = costs_of(model, slots, 0).without_draft()
                lookup = LookupDraft(assembled.prompt_token_ids)
                drafts.append(TokenDraft(lookup, Horizon(costs, start=0.5, most=10)))
                continue
            cache = self._draft_cache(part, assembled, options, queries, found)
            horizon = self._horizon(options, slots, cache.length)
            own_rows = len(assembled.question_ids)
            drafts.append(KVDraft(cache, horizon, logits, own_rows=own_rows))
        found.draft = drafts[0] if len(drafts) == 1 else ChainDraft(*drafts)
        return found

    def _horizon(
        self, options: GenerationOptions, prompt_slots: int, draft_slots: int
    ) -> Horizon | FixedHorizon:
        if options.draft_tokens is not None:
            return FixedHorizon(options.draft_tokens)
        costs = costs_of(self._store.model, prompt_slots, draft_slots)
        return Horizon(costs, always=options.decode == "verified")

    def _draft_cache(
        self,
        name: str,
        assembled: Assembled,
        options: GenerationOptions,
        queries: list[torch.Tensor],
        found: Drafting,
    ) -> SlotCache:
        """Return slots to draft on; write down in ``found`` how small they are."""
        base_bits = self._base_bits(assembled)
        _, rest = split_name(name)
        if base_bits is not None and rest == "exact":
            found.bits_per_scalar, found.kept_share = base_bits, 1.0
            found.caches.append(assembled.cache)
            return assembled.cache
        prompt = DraftPrompt(
            assembled.cache,
            queries,
            preamble_tokens=assembled.plan.preamble_tokens,
            question_tokens=len(assembled.question_ids),
            new_tokens=options.max_new_tokens,
            importance=self._assembler.importance(assembled) if takes_importance(rest) else None,
        )
        cache, view = draft_cache(self._store.model, prompt, rest, self._map_for(rest))
        found.kept_share = view.num_slots / assembled.plan.prompt_positions
        found.bits_per_scalar = sum(view.bits_per_scalar) / 2
        if base_bits is not None and isinstance(view, DenseView):
            found.bits_per_scalar = base_bits * found.kept_share
        found.caches.append(cache)
        return cache

    def _base_bits(self, assembled: Assembled) -> float | None:
        """Return bits read a scalar of K and V, where the prompt's packets are a base's."""
        if not assembled.swap_parts:
            return None
        positions = sum(part.positions for part in assembled.swap_parts)
        scalars = 2 * math.prod(self._store.layout.shape(positions))
        return 8 * assembled.base_bytes / scalars
