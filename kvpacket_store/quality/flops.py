"""Floating-point operations of what an arm computes until its first token, by formula.

A product of an ``m × n`` matrix and a vector is 2·m·n operations. A row costs, in each layer, the
layer's linear maps and 4·Hq·D a slot that it sees (q·k, and the mixing of values); the output head
is paid for a row whose logits are asked for. Placing keys is 3 operations a scalar (two products
and a sum). Norms, activations and softmax are left out: under 1 % of a row. Sliding windows are
counted as what they see.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvpacket_store.models import Model

__all__ = ["Flops"]


class Flops:
    """The formula with one model's sizes in it."""

    def __init__(self, model: Model) -> None:
        layers = model.hf.get_decoder().layers
        self._linear = [2 * _linear_weights(layer) for layer in layers]
        config = model.config
        self._query_width = config.num_attention_heads * model.layout.head_dim
        self._kv_width = model.layout.num_kv_heads * model.layout.head_dim
        self._windows = [layer.sliding_window_tokens for layer in model.layout.layers]
        self._head = 2 * int(model.hf.get_output_embeddings().weight.numel())
        self._hidden = int(config.hidden_size)

    def rows(
        self, slots: Iterable[int], *, first_layer: int = 0, end_layer: int | None = None
    ) -> int:
        """Return what rows at these slots cost in the layers from ``first_layer`` on."""
        seen = [slot + 1 for slot in slots]
        total = 0
        for linear, window in list(zip(self._linear, self._windows, strict=True))[
            first_layer:end_layer
        ]:
            visible = sum(seen if window is None else (min(s, window) for s in seen))
            total += len(seen) * linear + 4 * self._query_width * visible
        return total

    def forward(self, num_rows: int, num_filled: int) -> int:
        """Return what a forward costs that appends rows and gives the last one's logits."""
        return self.rows(range(num_filled, num_filled + num_rows)) + self._head

    def placing(self, num_slots: int) -> int:
        """Return what rotating the keys of so many slots costs."""
        return 3 * self._kv_width * num_slots * len(self._linear)

    def values(self, num_rows: int) -> int:
        """Return what K and V of so many rows cost in one layer, and nothing else of it."""
        return 2 * num_rows * self._hidden * 2 * self._kv_width


def _linear_weights(layer: torch.nn.Module) -> int:
    return sum(m.weight.numel() for m in layer.modules() if isinstance(m, torch.nn.Linear))
