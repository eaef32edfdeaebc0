"""A cache whose prompt can leave memory and come back, layer by layer.

Rows of the question and of the answer stay: they are few, and nothing else has them.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from kvpacket_store.errors import SwapFailedError
from kvpacket_store.models.slots import SlotCache, SlotLayer

__all__ = ["SwapCache"]


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
        super().__init__(shape, dtype, device)
        self._kept_from = kept_from
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        self._here = [threading.Event() for _ in range(shape[0])]
        self._failed = False
        self._bytes = self.k_slots.untyped_storage().nbytes()
        self.layers = [_SwapLayer(self, i) for i in range(shape[0])]
        self._release()

    @property
    def is_allocated(self) -> bool:
        """Whether the slots have memory, filled or not."""
        return self.k_slots.untyped_storage().nbytes() > 0

    @property
    def resident_bytes(self) -> int:
        """Bytes of the slots, or of what is kept of them."""
        kept = sum(part.nbytes for part in self._kept) if self._kept else 0
        return super().resident_bytes + kept

    def allocate(self) -> None:
        """Give the slots memory; what was kept is put back, the rest is for the caller to fill."""
        for slots in (self.k_slots, self.v_slots):
            slots.untyped_storage().resize_(self._bytes)
        if self._kept is not None:
            self.write_rows(self._kept_from, *self._kept)
            self._kept = None

    def drop(self) -> None:
        """Let the prompt's slots go."""
        k, v = self.rows(self._kept_from, max(self.length, self._kept_from))
        self._kept = (k.clone(), v.clone())
        for event in self._here:
            event.clear()
        self._release()

    def layer_is_here(self, layer: int) -> None:
        """Declare a layer filled."""
        self._here[layer].set()

    @property
    def is_here(self) -> bool:
        """Whether all layers are filled."""
        return not self._failed and all(event.is_set() for event in self._here)

    def all_is_here(self) -> None:
        """Declare every layer filled."""
        self._failed = False
        for event in self._here:
            event.set()

    def fail(self) -> None:
        """Let those who wait for a layer meet an error, until `all_is_here`."""
        self._failed = True
        for event in self._here:
            event.set()

    def layer_slots(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's slots, once they are filled.

        Raises
        ------
        SwapFailedError
            They will not be.
        """
        self._here[layer].wait()
        if self._failed:
            raise SwapFailedError("the exact K and V did not arrive")
        return super().layer_slots(layer)

    def rows(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows; of those that are kept also while the rest is out of memory."""
        if self._kept is None:
            return super().rows(start, end)
        k, v = self._kept
        own = slice(start - self._kept_from, end - self._kept_from)
        return k[:, :, own], v[:, :, own]

    def _release(self) -> None:
        for slots in (self.k_slots, self.v_slots):
            slots.untyped_storage().resize_(0)


class _SwapLayer(SlotLayer):
    """One layer for a model's own forward: it waits where the layer is still on its way."""

    def __init__(self, cache: SwapCache, index: int) -> None:
        super().__init__(cache.k_slots[index : index + 1], cache.v_slots[index : index + 1])
        self._cache = cache
        self._index = index

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SlotLayer.update`."""
        self._cache.layer_slots(self._index)
        return super().update(key_states, value_states)
