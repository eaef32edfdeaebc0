"""What a request drafts on: a compressed view of its prompt, and how much smaller it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kvpacket_store.assemble import AssemblyPlan
from kvpacket_store.compress import (
    DenseView,
    DraftView,
    HalfSplitRope,
    ImportanceMap,
    PromptKV,
    parse_compressor,
)
from kvpacket_store.models import Model, SlotCache, ViewCache

__all__ = [
    "BASE",
    "LOOKUP",
    "MODEL",
    "QUERY_ROWS",
    "WHOLE",
    "DraftPrompt",
    "draft_cache",
    "draft_slots",
    "split_name",
]

BASE = "base"
LOOKUP = "lookup"
MODEL = "model"
WHOLE = "exact"
QUERY_ROWS = 32
"""Most of the question's rows whose attention says which tokens to keep."""


@dataclass(frozen=True, slots=True)
class DraftPrompt:
    """A prompt in slots, as a compressor needs it.

    Parameters
    ----------
    cache : SlotCache
        Filled with the prompt.
    queries : list of float [Hq, Q, D]
        Of the question's last rows, a layer each.
    preamble_tokens, question_tokens : int
        Kept whatever their score.
    new_tokens : int
        Room for the answer.
    importance : float32 [L, H, T], optional
        Where the compressor judges by it.
    """

    cache: SlotCache
    queries: list[torch.Tensor]
    preamble_tokens: int
    question_tokens: int
    new_tokens: int
    importance: torch.Tensor | None = None


def split_name(name: str) -> tuple[bool, str]:
    """Return whether a compressor works on the base, and what it does there.

    Examples
    --------
    >>> split_name("base"), split_name("base*snapkv:0.25"), split_name("int8")
    ((True, 'exact'), (True, 'snapkv:0.25'), (False, 'int8'))
    """
    if name == BASE:
        return True, WHOLE
    if name.startswith(BASE + "*"):
        return True, name[len(BASE) + 1 :]
    return False, name


def draft_slots(part: str, plan: AssemblyPlan, new_tokens: int) -> int:
    """Return about how many slots a draft of that name takes, at most; quantisers take fewer bits.

    A draft model counts as the prompt whole, as if it were no smaller.
    """
    if part == LOOKUP:
        return 0
    share = 1.0
    for step in split_name(part)[1].split("*"):
        _, colon, number = step.partition(":")
        if colon and 0 < float(number) < 1:  # of slots; bits and strengths are more, or of no size
            share *= float(number)
    always = plan.preamble_tokens + plan.prompt_positions - plan.question_start
    kept = min(math.ceil(share * plan.prompt_positions) + always, plan.prompt_positions)
    return kept + new_tokens


def draft_cache(
    model: Model, prompt: DraftPrompt, name: str, importance_map: ImportanceMap | None = None
) -> tuple[SlotCache, DraftView]:
    """Return slots to draft on, and the view that they begin with.

    ``exact`` drafts on the K and V themselves; in a cache of its own, so that nothing drafted is
    ever in the target's.
    """
    compressor = parse_compressor(name, importance_map)
    kv = _prompt_kv(model, prompt)
    view = compressor.draft_view(kv, compressor.plan(kv))
    cache: SlotCache
    if isinstance(view, DenseView):
        cache = _filled(model, view, prompt.new_tokens)
    else:
        shape = model.layout.shape(prompt.new_tokens)
        cache = ViewCache(
            view, shape, model.slot_dtype, model.device, reads_codes=model.rows_are_alike
        )
    cache.leave_out(kv.num_slots - view.num_slots)
    return cache, view


def _filled(model: Model, view: DraftView, new_tokens: int) -> SlotCache:
    cache = model.new_cache(view.num_slots + new_tokens)
    for layer in range(model.layout.num_layers):
        k, v = view.layer(layer)
        cache.k_slots[layer, :, : view.num_slots] = k
        cache.v_slots[layer, :, : view.num_slots] = v
    cache.set_length(view.num_slots)
    return cache


def _prompt_kv(model: Model, prompt: DraftPrompt) -> PromptKV:
    k, v = prompt.cache.rows(0, prompt.cache.length)
    return PromptKV(
        k,
        v,
        scaling=float(model.attentions[0].scaling),
        queries=torch.stack(prompt.queries) if prompt.queries else None,
        importance=prompt.importance,
        rope=HalfSplitRope.of(model),
        first=prompt.preamble_tokens,
        recent=prompt.question_tokens,
    )
