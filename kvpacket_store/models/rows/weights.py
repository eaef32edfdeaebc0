"""A Llama-like model's weights as the row kernels read them: arrays, nothing copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from kvpacket_store.models.compute import TwoWidthLinear
from kvpacket_store.models.rows.micro import LANES

if TYPE_CHECKING:
    from kvpacket_store.models.model import Model

__all__ = [
    "LayerWeights",
    "Linear",
    "is_hooked",
    "layer_weights",
    "linear_weights",
    "norm_weights",
    "suits_row_kernels",
]

Array: TypeAlias = npt.NDArray[Any]

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
_PLAIN = (torch.nn.Linear, TwoWidthLinear)
_DTYPES = (torch.float32, torch.bfloat16)
_NO_BIAS = np.empty(0, np.float32)


def suits_row_kernels(model: Model) -> bool:
    """Whether a model is made of nothing but what the row kernels run."""
    config = model.config
    if config.model_type not in _FAMILIES or model.device.type != "cpu":
        return False
    if config.hidden_act != "silu" or len(model.rotaries) != 1 or model.dtype not in _DTYPES:
        return False
    if any(layer.sliding_window_tokens is not None for layer in model.layout.layers):
        return False
    decoder = model.hf.get_decoder()
    mlps = [layer.mlp for layer in decoder.layers]
    if any(getattr(mlp.gate_proj, "bias", None) is not None for mlp in mlps):
        return False
    maps = [m for layer in decoder.layers for m in layer.modules() if hasattr(m, "in_features")]
    if any(m.in_features % LANES for m in maps) or model.layout.head_dim % LANES:
        return False
    return all(type(m) in _PLAIN for m in [*maps, model.hf.lm_head])


def is_hooked(model: Model) -> bool:
    """Whether somebody hears or changes what layers do; row kernels would pass by."""
    modules = model.hf.get_decoder().modules()
    return any(m._forward_hooks or m._forward_pre_hooks for m in modules)


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map: ``weight [N, K]`` as bf16 bits (uint16) or fp32, ``bias [N]`` or empty."""

    weight: Array
    bias: Array


def linear_weights(module: torch.nn.Linear) -> Linear:
    """Return a module's weights; the narrow ones where it has them in bf16, half the bytes."""
    weight = module.weight.detach()
    if isinstance(module, TwoWidthLinear) and module.narrow_weight.dtype == torch.bfloat16:
        weight = module.narrow_weight
    bits = weight.view(torch.uint16) if weight.dtype == torch.bfloat16 else weight
    bias: torch.Tensor | None = module.bias  # torch declares it a tensor always
    return Linear(bits.numpy(), _NO_BIAS if bias is None else bias.detach().float().numpy())


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Norms are ``(weight, eps)``."""

    norms: tuple[tuple[Array, float], tuple[Array, float]]
    qkv: tuple[Linear, Linear, Linear]
    head_norms: tuple[tuple[Array, float], tuple[Array, float]] | None
    o: Linear
    gate: Array
    up: Array
    down: Linear
    scaling: float


def layer_weights(layer: Any) -> LayerWeights:
    """Return the weights of one decoder layer."""
    attention, mlp = layer.self_attn, layer.mlp
    head_norms = None
    if hasattr(attention, "q_norm"):
        head_norms = (norm_weights(attention.q_norm), norm_weights(attention.k_norm))
    return LayerWeights(
        norms=(norm_weights(layer.input_layernorm), norm_weights(layer.post_attention_layernorm)),
        qkv=(
            linear_weights(attention.q_proj),
            linear_weights(attention.k_proj),
            linear_weights(attention.v_proj),
        ),
        head_norms=head_norms,
        o=linear_weights(attention.o_proj),
        gate=linear_weights(mlp.gate_proj).weight,
        up=linear_weights(mlp.up_proj).weight,
        down=linear_weights(mlp.down_proj),
        scaling=float(attention.scaling),
    )


def norm_weights(norm: Any) -> tuple[Array, float]:
    """Return an RMS norm's weight and epsilon."""
    return norm.weight.detach().float().numpy(), float(norm.variance_epsilon)
