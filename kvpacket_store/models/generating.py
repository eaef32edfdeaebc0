"""Hugging Face's ``generate`` on packets: it decodes with the kernels that an engine decodes with.

Where row kernels run, a row of theirs has other bits than one of the library's own forward, which
is enough to decide a tie otherwise. So on a cache that is made for ``generate`` single rows go
through the kernels; whatever else is asked of the model goes through the library.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any

from kvpacket_store.models.slots import SlotCache

if TYPE_CHECKING:
    from kvpacket_store.models.model import Model

__all__ = ["for_generate"]

_MUST_BE_UNSET = ("inputs_embeds", "labels", "output_attentions", "output_hidden_states")


def for_generate(model: Model, cache: SlotCache) -> SlotCache:
    """Return the cache, on which ``model.hf.generate`` gives what one token a step gives."""
    cache.is_for_generate = True
    if getattr(model.hf.forward, "rows_of", None) is not model:
        model.hf.forward = MethodType(_with_rows(model), model.hf)
    return cache


def _with_rows(model: Model) -> Any:
    """Return the library's forward, but for single rows on caches that are made for generate.

    It is a method, so that a copy of ``model.hf`` has one that is bound to the copy: that is the
    library's alone.
    """
    library = type(model.hf).forward

    @functools.wraps(library)
    def forward(hf: Any, *args: Any, **named: Any) -> Any:
        cache: Any = named.get("cache", named.get("past_key_values"))
        is_ours = isinstance(cache, SlotCache) and cache.is_for_generate and not args
        is_ours = is_ours and hf is model.hf and model.rows_are_alike
        if not is_ours or not _is_next_row(cache, named):
            return library(hf, *args, **named)
        from transformers.modeling_outputs import CausalLMOutputWithPast

        logits = model.row_step(cache)(int(named["input_ids"][0, 0]))
        return CausalLMOutputWithPast(logits=logits[None, None], cache=cache)

    forward.rows_of = model  # type: ignore[attr-defined]
    return forward


def _is_next_row(cache: SlotCache, named: Mapping[str, Any]) -> bool:
    """Whether one token is to follow all slots of a cache, and nothing more is wanted."""
    if not cache.length:
        return False
    ids, mask, positions = (
        named.get(name) for name in ("input_ids", "attention_mask", "position_ids")
    )
    if ids is None or tuple(ids.shape) != (1, 1):
        return False
    if any(named.get(name) not in (None, False) for name in _MUST_BE_UNSET):
        return False
    is_at_end = positions is None or int(positions.max()) == cache.length + cache.position_offset
    return is_at_end and (mask is None or (mask.dim() == 2 and bool(mask.all())))
