"""A model's rotary embedding, run with the model's own modules and arithmetic.

Placing a stored key at a position is one call of the function that the model itself calls, on the
same numbers in the same dtype: the result is bit for bit the model's own key at that position.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from kvpacket_store.types import RopeSpec

__all__ = ["Rotary", "rotaries_of"]


class Rotary:
    """One of a model's rotary embeddings (Gemma3 has two).

    Parameters
    ----------
    spec : RopeSpec
        Its description.
    module : torch.nn.Module
        The model's ``rotary_emb``.
    layer_type : str or None
        The argument that the module needs to choose its frequencies, where it has several.
    apply : callable
        The model's ``apply_rotary_pos_emb(q, k, cos, sin)``.
    """

    def __init__(
        self,
        spec: RopeSpec,
        module: torch.nn.Module,
        layer_type: str | None,
        apply: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.spec = spec
        self._module = module
        self._layer_type = layer_type
        self._apply = apply

    @property
    def inv_freq(self) -> torch.Tensor:
        """Frequencies, float32 ``[rotary_dim / 2]``, radians a position."""
        name = f"{self._layer_type}_inv_freq" if self._layer_type else "inv_freq"
        frequencies: torch.Tensor = getattr(self._module, name)
        return frequencies.float()

    def cos_sin(
        self, positions: torch.Tensor, like: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin ``[1, T, rotary_dim]`` for int64 ``positions [T]``."""
        extra = (self._layer_type,) if self._layer_type else ()
        cos, sin = self._module(like, positions[None], *extra)
        return cos, sin

    def rotate(self, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate keys ``[B, H, T, D]`` as the model does."""
        # The model's function rotates a query and a key; an empty query costs nothing.
        _, rotated = self._apply(k[:, :0], k, cos, sin)
        return rotated


def rotaries_of(decoder: Any, config: Any, attention: torch.nn.Module) -> dict[str, Rotary]:
    """Return the rotary embeddings of a decoder by layer type."""
    apply = sys.modules[type(attention).__module__].apply_rotary_pos_emb
    parameters = dict(config.rope_parameters)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    several = all(isinstance(value, dict) for value in parameters.values())
    result = {}
    for name in sorted(set(layer_types_of(config))):
        own = parameters[name] if several else parameters
        spec = RopeSpec(
            name=name if several else "rope",
            rope_type=own.get("rope_type", "default"),
            parameters=own,
            rotary_dim=int(head_dim * own.get("partial_rotary_factor", 1.0)),
        )
        result[name] = Rotary(spec, decoder.rotary_emb, name if several else None, apply)
    return result


def layer_types_of(config: Any) -> list[str]:
    """Return each layer's type; older configs without them have full attention everywhere."""
    types = getattr(config, "layer_types", None)
    if types:
        return list(types)[: config.num_hidden_layers]
    kind = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    return [kind] * config.num_hidden_layers
