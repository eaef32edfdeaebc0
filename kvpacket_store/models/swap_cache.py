"""A cache whose prompt can leave memory and come back, layer by layer.

Rows of the question and of the answer stay: they are few, and nothing else has them.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Protocol

import torch

from kvpacket_store.errors import SwapFailedError
from kvpacket_store.models.slots import SlotCache, SlotLayer

__all__ = ["Arrival", "SwapCache"]


class Arrival(Protocol):
    """What was sent to a device and may not be there yet."""

    def wait(self) -> None:
        """Let what this thread runs on the device from here on wait for it; return at once."""
        ...


class SwapCache(SlotCache):
    """Slots that start without memory; `allocate`, fill and `layer_is_here`, then use.

    Parameters
    ----------
    shape : tuple of int
        ``[L, H, N, D]``.
    dtype, device
        Of the model.
    kept_from : int
        Slots before it can be dropped; those from it on are kept.

    Examples
    --------
    >>> cache = SwapCache((2, 1, 8, 4), torch.float32, torch.device("cpu"), kept_from=6)
    >>> cache.resident_bytes, cache.is_allocated
    (0, False)
    >>> cache.allocate()
    >>> cache.resident_bytes
    512
    >>> cache.set_length(8)
    >>> cache.drop()
    >>> cache.resident_bytes
    128
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        kept_from: int,
    ) -> None:
        super().__init__((*shape[:2], 0, shape[3]), dtype, device)
        self._shape = shape
        self._kept_from = kept_from
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        self._here = [threading.Event() for _ in range(shape[0])]
        self._arrivals: list[Arrival | None] = [None] * shape[0]
        self._failed = False
        self.layers = [_SwapLayer(self, i) for i in range(shape[0])]

    @property
    def is_allocated(self) -> bool:
        """Whether the slots have memory, filled or not."""
        return int(self.k_slots.shape[2]) > 0

    @property
    def num_slots(self) -> int:
        """Slots, in memory or not."""
        return self._shape[2]

    @property
    def whole_bytes(self) -> int:
        """Bytes of all slots, in memory or not."""
        return 2 * math.prod(self._shape) * self.k_slots.itemsize

    @property
    def resident_bytes(self) -> int:
        """Bytes of the slots, or of what is kept of them."""
        kept = sum(part.nbytes for part in self._kept) if self._kept else 0
        return super().resident_bytes + kept

    def allocate(self) -> None:
        """Give the slots memory; what was kept is put back, the rest is for the caller to fill."""
        self._point_to(self._shape)
        if self._kept is not None:
            self.write_rows(self._kept_from, *self._kept)
            self._kept = None

    def drop(self) -> None:
        """Let the prompt's slots go."""
        k, v = self.rows(self._kept_from, max(self.length, self._kept_from))
        self._kept = (k.clone(), v.clone())
        for event in self._here:
            event.clear()
        self._point_to((*self._shape[:2], 0, self._shape[3]))

    def layer_is_here(self, layer: int, arrival: Arrival | None = None) -> None:
        """Declare a layer filled, or sent: once ``arrival`` was waited for it is filled."""
        self._arrivals[layer] = arrival
        self._here[layer].set()

    @property
    def is_here(self) -> bool:
        """Whether all layers are filled."""
        return not self._failed and all(event.is_set() for event in self._here)

    def all_is_here(self, arrival: Arrival | None = None) -> None:
        """Declare every layer filled, or sent, as `layer_is_here`."""
        self._failed = False
        for layer in range(len(self._here)):
            self.layer_is_here(layer, arrival)

    def fail(self) -> None:
        """Let those who wait for a layer meet an error, until `all_is_here`."""
        self._failed = True
        for event in self._here:
            event.set()

    def layer_slots(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's slots, once they are filled.

        On a device, what is run after this waits there until they are; this thread does not.

        Raises
        ------
        SwapFailedError
            They will not be.
        """
        self._here[layer].wait()
        if self._failed:
            raise SwapFailedError("the exact K and V did not arrive")
        if (arrival := self._arrivals[layer]) is not None:
            arrival.wait()
        return super().layer_slots(layer)

    def rows(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows; of those that are kept also while the rest is out of memory."""
        if self._kept is None:
            return super().rows(start, end)
        k, v = self._kept
        own = slice(start - self._kept_from, end - self._kept_from)
        return k[:, :, own], v[:, :, own]

    def _point_to(self, shape: tuple[int, int, int, int]) -> None:
        """Take new slots; whoever looks into the old ones keeps these alive."""
        self.k_slots = torch.empty(shape, dtype=self.k_slots.dtype, device=self.k_slots.device)
        self.v_slots = torch.empty_like(self.k_slots)
        for index, layer in enumerate(self.layers):
            layer.keys = self.k_slots[index : index + 1]
            layer.values = self.v_slots[index : index + 1]


class _SwapLayer(SlotLayer):
    """One layer for a model's own forward: it waits where the layer is still on its way."""

    def __init__(self, cache: SwapCache, index: int) -> None:
        super().__init__(cache.k_slots[index : index + 1], cache.v_slots[index : index + 1])
        self._cache = cache
        self._index = index

    def get_max_length(self) -> int:
        """Return the number of slots, in memory or not."""
        return self._cache.num_slots

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SlotLayer.update`."""
        self._cache.layer_slots(self._index)
        return super().update(key_states, value_states)
