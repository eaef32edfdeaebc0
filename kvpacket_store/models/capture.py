"""Tap a forward pass for keys before RoPE and for values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kvpacket_store.models.families import Family
from kvpacket_store.types import KVLayout

__all__ = ["Capture", "capturing"]


class Capture:
    """What the taps saw in the last forward: a tensor ``[H, T, D]`` a layer."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._k: list[torch.Tensor | None] = [None] * layout.num_layers
        self._v: list[torch.Tensor | None] = [None] * layout.num_layers

    def set_k(self, layer: int, k: torch.Tensor) -> None:
        """Keep the keys ``[H, T, D]`` of ``layer``."""
        self._k[layer] = k

    def set_v(self, layer: int, v: torch.Tensor) -> None:
        """Keep the values ``[H, T, D]`` of ``layer``."""
        self._v[layer] = v

    def stacked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K (before RoPE) and V, ``[L, H, T, D]`` each.

        Raises
        ------
        RuntimeError
            A layer's taps did not fire: the architecture is not what its family says.
        """
        if any(k is None for k in self._k) or any(v is None for v in self._v):
            raise RuntimeError(
                "a layer gave no keys or values; the model's code is not the family's"
            )
        return torch.stack(self._k), torch.stack(self._v)  # type: ignore[arg-type]


def _split_fused(out: torch.Tensor, layout: KVLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut k and v from ``[B, T, (Hq + 2H)·D]``."""
    width = layout.num_kv_heads * layout.head_dim
    return out[..., -2 * width : -width], out[..., -width:]


def _heads_first(out: torch.Tensor, layout: KVLayout, *, already: bool = False) -> torch.Tensor:
    """Return ``[H, T, D]`` of batch row 0, as a copy that outlives the forward."""
    if out.dim() == 3:
        out = out.view(*out.shape[:-1], layout.num_kv_heads, layout.head_dim)
    row = out[0] if already else out[0].transpose(0, 1)
    return row.clone(memory_format=torch.contiguous_format)


@contextmanager
def capturing(
    attentions: Sequence[torch.nn.Module], family: Family, layout: KVLayout
) -> Iterator[Capture]:
    """Install the taps of ``family`` on every attention module for the time of the block."""
    capture = Capture(layout)
    handles = []
    try:
        for layer, attention in enumerate(attentions):
            for name, hook in _hooks(capture, family, layout, layer):
                handles.append(attention.get_submodule(name).register_forward_hook(hook))
        yield capture
    finally:
        for handle in handles:
            handle.remove()


def _hooks(
    capture: Capture, family: Family, layout: KVLayout, layer: int
) -> list[tuple[str, Callable[[Any, Any, torch.Tensor], None]]]:
    """Return which submodule of a layer's attention to tap, and with what."""

    def fused(_module: Any, _args: Any, out: torch.Tensor) -> None:
        k, v = _split_fused(out, layout)
        capture.set_k(layer, _heads_first(k, layout))
        capture.set_v(layer, _heads_first(v, layout))

    def keys(_module: Any, _args: Any, out: torch.Tensor) -> None:
        capture.set_k(layer, _heads_first(out, layout, already=family.k_heads_first))

    def values(_module: Any, _args: Any, out: torch.Tensor) -> None:
        capture.set_v(layer, _heads_first(out, layout))

    if family.fused:
        return [(family.k_module, fused)]
    return [(family.k_module, keys), (family.v_module, values)]
