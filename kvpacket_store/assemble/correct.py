"""Corrections of placed packets, with the model's tensors: see `adapters.Correction`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch

from kvpacket_store.adapters import DISTANCE_EDGES, Adapter
from kvpacket_store.errors import AdapterError
from kvpacket_store.models import Model

__all__ = ["Correct", "Corrector"]

Correct: TypeAlias = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Layer, its K before RoPE and V ``[H, T, D]`` → what is to be placed."""


class Corrector:
    """Corrects rows of packets for what lies before them.

    Parameters
    ----------
    adapter : Adapter
        Its correction, if it has one.
    model : Model
        Whose rows.

    Raises
    ------
    AdapterError
        The correction is for a model of another shape.

    Examples
    --------
    ::

        correct = corrector.behind(300)  # None where nothing is to be corrected
        place(model, cache, k, v, kv_dtype=kv_dtype, start=327, correct=correct)
    """

    def __init__(self, adapter: Adapter, model: Model) -> None:
        self._correction = correction = adapter.correction
        self._trailer_tokens = adapter.trailer_tokens
        if correction is None:
            return
        layout = model.layout
        if correction.shape != (layout.num_layers, layout.num_kv_heads, layout.head_dim):
            raise AdapterError(
                f"adapter {adapter.name!r} corrects layers, heads and dimension {correction.shape},"
                f" model {model.name!r} has others; use an adapter that was made for this model"
            )
        self._maps = torch.tensor(correction.maps, device=model.device)
        self._biases = torch.tensor(correction.biases, device=model.device)
        self._edges = torch.tensor(DISTANCE_EDGES, device=model.device)

    def behind(self, positions_before: int) -> Correct | None:
        """Return what corrects a packet behind so many positions; None for the first one.

        Positions are those after the preamble: document tokens, and soft ones that stay.
        """
        if self._correction is None or not positions_before:
            return None
        return partial(self._corrected, self._correction.weight(positions_before))

    def _corrected(
        self, weight: float, layer: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = k.shape[1] - self._trailer_tokens  # a trailer stays as it was learned
        bucket = torch.bucketize(torch.arange(count, device=k.device), self._edges, right=True)
        found = []
        for side, x in enumerate((k, v)):
            wide = x[:, :count].float()
            shift = torch.bmm(wide, self._maps[side, layer]) + self._biases[side, layer][:, bucket]
            corrected = (wide + weight * shift).to(x.dtype)
            found.append(torch.cat([corrected, x[:, count:]], dim=1))
        return found[0], found[1]
