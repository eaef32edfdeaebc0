"""A cache whose prompt is a packed view: read as it lies, or expanded while a layer runs.

Only the packed prompt, the rows of new tokens and at most one layer's expansion are in memory.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from kvpacket_store.models.rows.coded import CodedSlots
from kvpacket_store.models.slots import SlotCache, SlotLayer

__all__ = ["LayerView", "ViewCache"]


class LayerView(Protocol):
    """Where a prompt's K and V come from, layer by layer."""

    @property
    def num_slots(self) -> int:
        """Slots n that the view holds."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        ...

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K (rotated) and V of a layer, ``[H, n, D]`` each."""
        ...

    def coded(self, index: int) -> tuple[CodedSlots, CodedSlots] | None:
        """Return the same as bytes, where row kernels can read them."""
        ...


class ViewCache(SlotCache):
    """A view's slots, and behind them slots of its own.

    Parameters
    ----------
    view : LayerView
        The prompt; never written to.
    shape : tuple of int
        ``[L, H, N, D]`` of the slots behind it.
    dtype, device
        Of the slots.
    reads_codes : bool
        Whether row kernels run on it, which read a view in bytes as it lies.
    """

    def __init__(
        self,
        view: LayerView,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        reads_codes: bool = False,
    ) -> None:
        super().__init__(shape, dtype, device)
        self._view, self._reads_codes = view, reads_codes
        layers, heads, _, dim = shape
        self._layer = torch.empty((2, heads, 0, dim), dtype=dtype, device=device)
        self.layers = [_ViewLayer(self, i) for i in range(layers)]
        self.set_length(view.num_slots)

    @property
    def num_slots(self) -> int:
        """Slots of the view and behind it."""
        return self._view.num_slots + super().num_slots

    @property
    def resident_bytes(self) -> int:
        """Bytes of the packed view, of the slots behind it, and of one layer expanded."""
        return self._view.nbytes + super().resident_bytes + self._layer.nbytes

    @property
    def read_slots(self) -> int:
        """Where the view is read as it lies, fewer than its slots."""
        if not self._reads_codes or self._view.coded(0) is None:
            return self.length
        behind, slot_bytes = self.length - self._view.num_slots, self._layer.itemsize
        slot_bytes *= 2 * len(self.layers) * self._layer.shape[1] * self._layer.shape[3]
        return behind + self._view.nbytes // slot_bytes

    def layer_slots(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Expand one layer; what the last call returned is overwritten."""
        first = self._view.num_slots
        if not self._layer.numel():
            _, heads, _, dim = self._layer.shape
            self._layer = self._layer.new_empty((2, heads, self.num_slots, dim))
        for whole, part in zip(self._layer, self._view.layer(layer), strict=True):
            whole[:, :first] = part
        self._layer[0, :, first:] = self.k_slots[layer]
        self._layer[1, :, first:] = self.v_slots[layer]
        return self._layer[0], self._layer[1]

    def coded_slots(self, layer: int, start: int) -> tuple[CodedSlots, CodedSlots] | None:
        """Return the view as bytes, if it is held so and ends before ``start``."""
        if not self._reads_codes or start < self._view.num_slots:
            return None
        return self._view.coded(layer)

    def keep_rows(self, layer: int, start: int, count: int) -> None:
        """Take rows over from the expanded layer; those in the view stay as the view has them."""
        first = max(start, self._view.num_slots)
        end = max(start + count, first)
        own = slice(first - self._view.num_slots, end - self._view.num_slots)
        self.k_slots[layer, :, own] = self._layer[0, :, first:end]
        self.v_slots[layer, :, own] = self._layer[1, :, first:end]

    def rows(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows behind the view."""
        first = self._view.num_slots
        return super().rows(start - first, end - first)

    def write_rows(self, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write rows behind the view; those that lie in it stay as the view has them."""
        inside = min(max(self._view.num_slots - start, 0), k.shape[2])
        first = start + inside - self._view.num_slots
        super().write_rows(first, k[:, :, inside:], v[:, :, inside:])


class _ViewLayer(SlotLayer):
    """One layer for a model's own forward."""

    def __init__(self, cache: ViewCache, index: int) -> None:
        super().__init__(cache.k_slots[index : index + 1], cache.v_slots[index : index + 1])
        self._cache = cache
        self._index = index
        self._num_slots = cache.num_slots

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, H, Q, D]`` after the last filled slot; return all filled slots, expanded."""
        k, v = self._cache.layer_slots(self._index)
        start = self.reserve(key_states.shape[2])
        k[:, start : self.length], v[:, start : self.length] = key_states[0], value_states[0]
        self._cache.keep_rows(self._index, start, key_states.shape[2])
        return k[None, :, : self.length], v[None, :, : self.length]

    def get_max_length(self) -> int:
        """Return the number of slots, the view's included."""
        return self._num_slots
