"""Drafts by name: what proposes a request's tokens, and how small what it reads is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.assembled import Assembled
from kvpacket_store.api.begun import Drafting
from kvpacket_store.api.costs import costs_of
from kvpacket_store.api.draft_model import DraftModel
from kvpacket_store.api.drafting import LOOKUP, MODEL, WHOLE, DraftPrompt, draft_cache, split_name
from kvpacket_store.api.importance_maps import map_of
from kvpacket_store.compress import (
    DenseView,
    ImportanceMap,
    parse_compressor,
    takes_importance,
    takes_map,
)
from kvpacket_store.errors import UsageError
from kvpacket_store.generate import (
    ChainDraft,
    Draft,
    FixedHorizon,
    GenerationOptions,
    Horizon,
    KVDraft,
    LookupDraft,
    ModelDraft,
    NGramIndex,
    NoDraft,
    Rival,
)
from kvpacket_store.models import SlotCache
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["DraftGround", "DraftMaker"]

_MOST_PARTS = 3
# Shares of drafts accepted, to begin with: all tokens in 8 bits or more, and others.
_ACCEPTED_FINE, _ACCEPTED = 0.93, 0.85


@dataclass(frozen=True, slots=True)
class DraftGround:
    """What a request's drafts are made on.

    Parameters
    ----------
    assembled : Assembled
        In its slots is the prompt with its question: the target's own, its packets' bases, or the
        packets that draft for a joint prefill.
    queries : list of float [Hq, Q, D]
        Of the question's last rows, a layer each.
    target_ids : token ids
        One for every position of the target's prompt.
    logits : float [vocab], optional
        Of the prompt's last row: needed where drafts may start before the target.
    is_apart : bool
        Its positions are not the target's: drafts keep rows of their own.
    """

    assembled: Assembled
    queries: list[torch.Tensor]
    target_ids: TokenIds
    logits: torch.Tensor | None = None
    is_apart: bool = False


class DraftMaker:
    """Makes drafts for one store's requests.

    Parameters
    ----------
    store : Store
        Whose model decides.
    importance : callable
        Tells how much each slot of a prompt is needed, float32 ``[L, H, T]``.
    draft_model : DraftModel, optional
        What drafts under the name ``model``.
    """

    def __init__(
        self,
        store: Store,
        importance: Callable[[Assembled], torch.Tensor],
        draft_model: DraftModel | None = None,
    ) -> None:
        self._store = store
        self._importance = importance
        self._draft_model = draft_model

    @property
    def has_model(self) -> bool:
        """Whether a draft model is there."""
        return self._draft_model is not None

    def check(self, name: str) -> None:
        """Raise UsageError where nothing drafts by that name."""
        parts = name.split("+")
        if len(parts) > _MOST_PARTS or len(set(parts)) < len(parts):
            raise UsageError(
                f"compressor {name!r:.80} asks {len(parts)} drafts in turn, each with its own "
                f"memory; name {_MOST_PARTS} different ones at most"
            )
        for part in parts:
            if part == MODEL and not self.has_model:
                raise UsageError(
                    f"compressor {name!r} drafts with a smaller model, and there is none; name one "
                    "(draft_model of Engine, --draft-model of kvps ask)"
                )
            if part not in (LOOKUP, MODEL):
                rest = split_name(part)[1]
                parse_compressor(rest, self._map_for(rest))

    def _map_for(self, name: str) -> ImportanceMap | None:
        return map_of(self._store) if takes_map(name) else None

    def drafting(self, name: str, ground: DraftGround, options: GenerationOptions) -> Drafting:
        """Return what drafts as ``name`` says, and how small what it reads is.

        Several names with ``+`` between them are asked in turn.
        """
        found = Drafting(NoDraft())
        parts = name.split("+")
        made = {p: self._part(p, ground, options, found) for p in parts if p != LOOKUP}
        drafts: list[Draft] = []
        for at, part in enumerate(parts):
            rival = next((made[after] for after in parts[at + 1 :]), None)
            drafts.append(made[part] if part in made else self._lookup(ground, rival))
        found.draft = drafts[0] if len(drafts) == 1 else ChainDraft(*drafts)
        return found

    def _lookup(self, ground: DraftGround, rival: Rival | None) -> LookupDraft:
        costs = costs_of(self._store.model, ground.assembled.plan.prompt_positions, 0)
        return LookupDraft(NGramIndex(ground.target_ids), costs, rival)

    def _part(
        self, part: str, ground: DraftGround, options: GenerationOptions, found: Drafting
    ) -> KVDraft | ModelDraft:
        slots = ground.assembled.plan.prompt_positions
        if part == MODEL and self._draft_model is not None:
            draft = self._draft_model.draft(ground.assembled.text_ids, slots, options)
            found.of_models.append(draft)
            return draft
        cache = self._draft_cache(part, ground, options, found)
        return KVDraft(
            cache,
            self._horizon(options, slots, cache.read_slots, is_fine=_is_fine(found)),
            ground.logits,
            own_rows=len(ground.assembled.question_ids),
            takes_rows=not ground.is_apart,
        )

    def _horizon(
        self, options: GenerationOptions, prompt_slots: int, draft_slots: int, *, is_fine: bool
    ) -> Horizon | FixedHorizon:
        if options.draft_tokens is not None:
            return FixedHorizon(options.draft_tokens)
        costs = costs_of(self._store.model, prompt_slots, draft_slots)
        start = _ACCEPTED_FINE if is_fine else _ACCEPTED
        return Horizon(costs, start=start, always=options.decode == "verified")

    def _draft_cache(
        self, name: str, ground: DraftGround, options: GenerationOptions, found: Drafting
    ) -> SlotCache:
        """Return slots to draft on; write down in ``found`` how small they are."""
        assembled, base_bits = ground.assembled, self._base_bits(ground.assembled)
        _, rest = split_name(name)
        is_free = ground.is_apart or base_bits is not None  # its slots are none of the target's
        if rest == WHOLE and is_free and not found.is_on(assembled.cache):
            stored_bits = 8.0 * self._store.kv_dtype.bits_dtype.itemsize
            found.bits_per_scalar = stored_bits if base_bits is None else base_bits
            found.kept_share = 1.0
            found.caches.append(assembled.cache)
            return assembled.cache
        prompt = DraftPrompt(
            assembled.cache,
            ground.queries,
            preamble_tokens=assembled.plan.preamble_tokens,
            question_tokens=len(assembled.question_ids),
            new_tokens=options.max_new_tokens,
            importance=self._importance(assembled) if takes_importance(rest) else None,
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


def _is_fine(found: Drafting) -> bool:
    return found.kept_share == 1.0 and (found.bits_per_scalar or 0.0) >= 8
