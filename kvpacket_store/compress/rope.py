"""RoPE off and on again, half-split (NeoX) order, as all supported families have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvpacket_store.models import Model

__all__ = ["HalfSplitRope"]


@dataclass(frozen=True, slots=True)
class HalfSplitRope:
    """Turns keys by their slots' angles.

    Drafts need no more than this; exact keys are rotated with the model's own arithmetic
    (``assemble.place``). A model's attention scaling (YaRN) stays in the keys.

    Parameters
    ----------
    inv_freqs : sequence of float32 [rotary_dim / 2]
        Radians a position, one tensor a layer: ``model.rotaries[name].inv_freq``.

    Examples
    --------
    >>> rope = HalfSplitRope([torch.tensor([torch.pi / 2])])
    >>> slots = torch.tensor([[0, 1]])
    >>> k = rope.apply(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), slots, layer=0)
    >>> k.round().abs()
    tensor([[[1., 0.],
             [0., 1.]]])
    >>> rope.remove(k, slots, layer=0).round().abs()
    tensor([[[1., 0.],
             [1., 0.]]])
    """

    inv_freqs: Sequence[torch.Tensor]

    @classmethod
    def of(cls, model: Model) -> HalfSplitRope:
        """Return the angles of a model's layers."""
        return cls([model.rotaries[name].inv_freq for name in model.layer_types])

    def apply(self, k: torch.Tensor, slots: torch.Tensor, layer: int) -> torch.Tensor:
        """Rotate keys ``[H, n, D]`` to ``slots`` int64 ``[H, n]``."""
        return self._turned(k, slots, self.inv_freqs[layer])

    def remove(self, k: torch.Tensor, slots: torch.Tensor, layer: int) -> torch.Tensor:
        """Return keys ``[H, n, D]`` as they were before RoPE, rounded once more."""
        return self._turned(k, -slots, self.inv_freqs[layer])

    @staticmethod
    def _turned(k: torch.Tensor, slots: torch.Tensor, inv_freq: torch.Tensor) -> torch.Tensor:
        # float64: at slot 100,000 a float32 product is off by 0.004 radian in the fastest pair
        angles = slots[..., None].double() * inv_freq.to(k.device).double()
        cos, sin = angles.cos().float(), angles.sin().float()
        rotary_dim = 2 * inv_freq.shape[0]
        one, other = k[..., :rotary_dim].float().chunk(2, dim=-1)
        turned = torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
        return torch.cat([turned.to(k.dtype), k[..., rotary_dim:]], dim=-1)
