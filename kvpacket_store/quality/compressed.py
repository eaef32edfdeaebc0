"""Prompts whose K and V were made small: fewer tokens, or the base of a record alone.

The question is asked on what is left: it runs once over the exact K and V, which is what a token
dropper judges by, and once more over the kept slots, and that is what counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kvpacket_store.api.drafting import QUERY_ROWS, DraftPrompt, draft_cache
from kvpacket_store.codec import decode_base, encode_layers
from kvpacket_store.models import Model, observing_queries
from kvpacket_store.prefill import BodyKV
from kvpacket_store.quality.arm import Ready, Start
from kvpacket_store.quality.packets import Span
from kvpacket_store.quality.prompt import PromptTokens
from kvpacket_store.types import KVDtype

if TYPE_CHECKING:
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["KVChange", "as_one_preamble", "base_alone", "with_fewer_tokens"]

KVChange: TypeAlias = Callable[[BodyKV], BodyKV]


def as_one_preamble(prompt: PromptTokens) -> PromptTokens:
    """Return the prompt with its documents in the preamble: placed, it is a joint prefill."""
    return replace(prompt, preamble=(*prompt.preamble, *prompt.document_ids), segments=())


def base_alone(pack: CodecPack, kv_dtype: KVDtype, step: str) -> KVChange:
    """Return what turns K and V into what the base of their record gives at a step."""

    def change(body: BodyKV) -> BodyKV:
        if not body.k.shape[2]:
            return body
        layers = encode_layers(body.k, body.v, kv_dtype=kv_dtype, pack=pack, base_step=step)
        return BodyKV(*decode_base(layers.base, packs=[pack]))

    return change


def with_fewer_tokens(
    model: Model, start: Start, compressor: str, *, preamble_tokens: int, room_tokens: int
) -> Start:
    """Return a start whose question sees only the slots that a token dropper keeps.

    Parameters
    ----------
    start : Start
        Of an arm whose ``input_ids`` are the question.
    compressor : str
        A token dropper, as ``tova:0.9``; ``exact`` keeps all.
    preamble_tokens, room_tokens : int
        Slots that always stay, and room for an answer.
    """

    def dropped() -> Ready:
        ready = start()
        question = ready.input_ids
        with observing_queries(QUERY_ROWS) as queries:
            model.forward(question, ready.cache)
        prompt = DraftPrompt(ready.cache, queries, preamble_tokens, len(question), room_tokens)
        cache, view = draft_cache(model, prompt, compressor)
        kept = view.num_slots - len(question)
        cache.set_length(kept)
        spans = (Span("body", 0, kept), Span("question", kept, view.num_slots))
        return Ready(cache, question, ready.flops, ready.recomputed_tokens, spans)

    return dropped
