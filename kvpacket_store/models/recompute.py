"""Run chosen rows of a prompt again, in their place among the K and V that stay.

This is what methods do that mend packets online (CacheBlend, EPIC). The rows go through the model
layer by layer; in each layer their K and V replace those in the slots before attention looks there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from kvpacket_store.models.attending import (
    AttentionCall,
    AttentionRule,
    attending,
    plain_attention,
)
from kvpacket_store.models.slots import SlotCache, SlotLayer
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.models.model import Model

__all__ = ["recompute_rows", "values_at_layer"]


@torch.inference_mode()
def recompute_rows(
    model: Model, cache: SlotCache, token_ids: TokenIds, slots: Sequence[int]
) -> None:
    """Replace K and V of ``slots`` by what ``token_ids`` give there now.

    A row sees the slots up to its own: those that are recomputed as they are now, the others as
    they were. Recomputing all rows is a joint prefill.

    Parameters
    ----------
    cache : SlotCache
        Filled; position = slot. Its length stays.
    token_ids, slots
        The rows, ascending; equally many.
    """
    if not slots:
        return
    rows = torch.tensor(slots, dtype=torch.long, device=model.device)
    with attending(_seen_from(rows)):
        model.run_layers(token_ids, _Rewriting(cache, rows), position_ids=rows[None])


def _seen_from(rows: torch.Tensor) -> AttentionRule:
    """Return the rule of rows that lie at any slots, int64 ``[Q]``."""

    def rule(call: AttentionCall) -> torch.Tensor:
        slot = torch.arange(call.key.shape[2], device=rows.device)[None]
        mask = slot <= rows[:, None]
        if call.window is not None:
            mask &= slot > rows[:, None] - call.window
        return plain_attention(call, mask)

    return rule


class _Rewriting(SlotCache):
    """The slots of another cache, of which some rows are written again."""

    def __init__(self, cache: SlotCache, rows: torch.Tensor) -> None:
        layers, heads, _, dim = cache.k_slots.shape
        super().__init__((layers, heads, 0, dim), cache.k_slots.dtype, cache.k_slots.device)
        self.k_slots, self.v_slots = cache.k_slots, cache.v_slots
        self.layers = [
            _RewrittenLayer(self.k_slots[i : i + 1], self.v_slots[i : i + 1], rows)
            for i in range(len(self.k_slots))
        ]
        self.set_length(cache.length)


class _RewrittenLayer(SlotLayer):
    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: torch.Tensor) -> None:
        super().__init__(keys, values)
        self._rows = rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, H, Q, D]`` to the rows' slots; return all filled slots."""
        self.keys[:, :, self._rows] = key_states.to(self.keys.dtype)
        self.values[:, :, self._rows] = value_states.to(self.values.dtype)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class _EnoughError(Exception):
    """The layer that was asked for has its values."""


@torch.inference_mode()
def values_at_layer(model: Model, token_ids: TokenIds, layer: int) -> torch.Tensor:
    """Return V ``[H, T, D]`` of one layer of a joint prefill; later layers do not run."""
    rows = torch.arange(len(token_ids), device=model.device)
    causal, found = _seen_from(rows), []

    def rule(call: AttentionCall) -> torch.Tensor:
        if call.layer == layer:
            found.append(call.value[0].clone())
            raise _EnoughError
        return causal(call)

    with suppress(_EnoughError), attending(rule):
        model.run_layers(token_ids, model.new_cache(len(token_ids)))
    return found[0]
