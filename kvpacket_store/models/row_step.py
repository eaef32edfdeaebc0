"""One row through a Llama-like model without the library's bookkeeping.

The same operations on the same numbers in the same order as the model's own forward for one row, so
the same bits (tests/unit/models/test_models_row_step.py); what is left out is Python between them.
The readable reference is `Model.forward`; architectures that are not listed go through it. This is
for processors that compute in 16 bit; where the model computes in fp32, `rows` is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.nn import functional

from kvpacket_store.models.attention import single_row_attention
from kvpacket_store.models.compute import TwoWidthLinear

if TYPE_CHECKING:
    from kvpacket_store.models.model import Model
    from kvpacket_store.models.slots import SlotCache

__all__ = ["RowStep", "has_row_step"]

_Map: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
_PLAIN = (torch.nn.Linear, TwoWidthLinear)


def has_row_step(model: Model) -> bool:
    """Whether a model is made of nothing but what `RowStep` runs."""
    config = model.config
    if config.model_type not in _FAMILIES or model.device.type != "cpu":
        return False
    if config.hidden_act != "silu" or len(model.rotaries) != 1:
        return False
    if any(layer.sliding_window_tokens is not None for layer in model.layout.layers):
        return False
    decoder = model.hf.get_decoder()
    maps = [m for layer in decoder.layers for m in layer.modules() if hasattr(m, "in_features")]
    hooks = [m for m in decoder.modules() if m._forward_hooks or m._forward_pre_hooks]
    return not hooks and all(type(m) in _PLAIN for m in [*maps, model.hf.lm_head])


class RowStep:
    """Appends one token to a cache and returns the next logits ``[vocab]``.

    Parameters
    ----------
    model : Model
        One that `has_row_step`.
    """

    def __init__(self, model: Model) -> None:
        self._rotary = next(iter(model.rotaries.values()))
        self._embedding: torch.Tensor = model.embedding.weight
        decoder = model.hf.get_decoder()
        self._layers = [_Layer(layer, model) for layer in decoder.layers]
        self._norm: _Map = decoder.norm.forward
        self._head = _linear(model.hf.lm_head)

    @torch.inference_mode()
    def __call__(self, token_id: int, cache: SlotCache) -> torch.Tensor:
        """Run one row at the next position of ``cache``, which grows by it."""
        slot = cache.reserve(1)
        row = self._embedding[token_id : token_id + 1]
        position = torch.tensor([slot + cache.position_offset], device=row.device)
        cos, sin = (part[0] for part in self._rotary.cos_sin(position, row))
        for index, layer in enumerate(self._layers):
            row = layer.run(row, *cache.layer_slots(index), slot, cos, sin)
            cache.keep_rows(index, slot, 1)
        return self._head(self._norm(row))[0]


class _Layer:
    """The maps of one decoder layer, looked up once."""

    def __init__(self, layer: Any, model: Model) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._head_dim: int = model.layout.head_dim
        self._scaling: float = attention.scaling
        self._norms: tuple[_Map, _Map] = (
            layer.input_layernorm.forward,
            layer.post_attention_layernorm.forward,
        )
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        self._q, self._k, self._v, self._o = (_linear(getattr(attention, n)) for n in names)
        self._gate, self._up = _linear(mlp.gate_proj), _linear(mlp.up_proj)
        self._down = _linear(mlp.down_proj)
        self._q_norm: _Map | None = getattr(getattr(attention, "q_norm", None), "forward", None)
        self._k_norm: _Map | None = getattr(getattr(attention, "k_norm", None), "forward", None)

    def run(
        self,
        row: torch.Tensor,
        k_slots: torch.Tensor,
        v_slots: torch.Tensor,
        slot: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        """Run the layer on ``row [1, hidden]``; slots are ``[H, N, D]``."""
        x = self._norms[0](row)
        q, k = self._heads(self._q(x), self._q_norm), self._heads(self._k(x), self._k_norm)
        k_slots[:, slot] = k * cos + _half_turned(k) * sin
        v_slots[:, slot] = self._v(x).view(-1, self._head_dim)
        q = q * cos + _half_turned(q) * sin
        end = slot + 1
        mixed = single_row_attention(q, k_slots[:, :end], v_slots[:, :end], self._scaling)
        row = row + self._o(mixed.view(1, -1))
        x = self._norms[1](row)
        return row + self._down(functional.silu(self._gate(x)) * self._up(x))

    def _heads(self, flat: torch.Tensor, norm: _Map | None) -> torch.Tensor:
        heads = flat.view(-1, self._head_dim)
        return heads if norm is None else norm(heads)


def _half_turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _linear(module: torch.nn.Linear) -> _Map:
    """Return a linear module's map without the module call around it."""
    if isinstance(module, TwoWidthLinear):
        return module.map_row
    weight, bias = module.weight, module.bias
    return lambda x: functional.linear(x, weight, bias)
