"""Corrections of placed packets, with the model's tensors: see `adapters.Correction`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch

from kvpacket_store.adapters import DISTANCE_EDGES, Adapter
from kvpacket_store.assemble.before import Before
from kvpacket_store.errors import AdapterError
from kvpacket_store.models import Model

__all__ = ["Correct", "Corrector"]

Correct: TypeAlias = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Layer, its K before RoPE and V ``[H, T, D]`` → what is to be placed."""


class _Kind(NamedTuple):
    """Rows that repeat alike: which map they get, and which bias each."""

    number: int
    rows: torch.Tensor
    bucket: torch.Tensor


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

        before = predecessors.then(token_ids, positions=len(token_ids))
        correct = corrector.behind(before)  # None where nothing is to be corrected
        place(model, cache, k, v, kv_dtype=kv_dtype, start=327, correct=correct)
    """

    def __init__(self, adapter: Adapter, model: Model) -> None:
        self._correction = correction = adapter.correction
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

    def behind(self, before: Before) -> Correct | None:
        """Return what corrects a packet that stands there; None for the first one."""
        if self._correction is None or not before.positions:
            return None
        weight = self._correction.weight(before.positions)
        return partial(self._corrected, weight, self._kinds(before))

    def _kinds(self, before: Before) -> list[_Kind]:
        """Sort the rows of a segment by how they repeat what lies before it."""
        repeats = torch.from_numpy(before.repeats).to(self._maps.device)
        distance = torch.arange(len(repeats), device=self._maps.device)
        bucket = torch.bucketize(distance, self._edges, right=True)
        found = []
        for kind in range(len(self._maps)):
            rows = (repeats.clamp_max(len(self._maps) - 1) == kind).nonzero()[:, 0]
            if len(rows):
                found.append(_Kind(kind, rows, bucket[rows]))
        return found

    def _corrected(
        self,
        weight: float,
        kinds: Sequence[_Kind],
        layer: int,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = []
        for side, x in enumerate((k, v)):
            corrected = x.clone()  # a trailer stays as it was learned
            for kind, rows, bucket in kinds:
                wide = x[:, rows].float()
                biases = self._biases[kind, side, layer][:, bucket]
                shift = torch.bmm(wide, self._maps[kind, side, layer]) + biases
                corrected[:, rows] = (wide + weight * shift).to(x.dtype)
            found.append(corrected)
        return found[0], found[1]
