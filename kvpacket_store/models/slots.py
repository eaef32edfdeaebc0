"""A transformers ``Cache`` of preallocated slots: rows are written in place, never copied again.

``DynamicCache`` concatenates, that is copies all K and V for each token: 173 MB at 7,500 tokens of
SmolLM2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kvpacket_store.errors import ContextOverflowError

if TYPE_CHECKING:
    from kvpacket_store.models.rows.coded import CodedSlots

__all__ = ["SlotCache", "SlotLayer"]


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's K and V, ``[1, H, N, D]`` each; the first ``length`` slots are filled."""

    is_sliding = False
    is_croppable = True

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self.length = 0
        self.position_offset = 0
        self.device = keys.device
        self.dtype = keys.dtype
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: slots exist from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, H, Q, D]`` after the last filled slot; return views of all filled slots."""
        start = self.reserve(key_states.shape[2])
        end = self.length
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reserve(self, num_rows: int) -> int:
        """Count ``num_rows`` more slots as filled; return the first of them."""
        start, end = self.length, self.length + num_rows
        if end > self.get_max_length():
            raise ContextOverflowError(
                f"the cache has {self.get_max_length()} slots and {end} are needed; "
                "assemble with more room (max_new_tokens)"
            )
        self.length = end
        return start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (filled slots after the coming rows, offset)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the next position: the number of filled slots, and of positions left out."""
        return self.length + self.position_offset

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return int(self.keys.shape[2])

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` slots (transformers passes a negative number)."""
        self.length = max(0, self.length - abs(tokens_to_remove))

    def reset(self) -> None:
        """Forget every slot."""
        self.length = 0


class SlotCache(Cache):  # type: ignore[misc]
    """All layers' slots. Made empty; filled by the assembler and by the model's own forward.

    Parameters
    ----------
    num_layers, num_kv_heads, num_slots, head_dim : int
        Shape ``[L, H, N, D]``.
    dtype, device
        Of the model.

    Examples
    --------
    >>> cache = SlotCache((2, 1, 8, 4), torch.float32, torch.device("cpu"))
    >>> k = torch.ones(1, 1, 3, 4)
    >>> cache.update(k, k, layer_idx=0)[0].shape
    torch.Size([1, 1, 3, 4])
    >>> cache.layers[0].get_seq_length(), cache.layers[1].get_seq_length()
    (3, 0)
    """

    is_for_generate = False
    """Whether the library's ``generate`` decodes on it: see ``generating``."""

    def __init__(
        self, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        num_layers, heads, slots, dim = shape
        self.k_slots = torch.empty((num_layers, heads, slots, dim), dtype=dtype, device=device)
        self.v_slots = torch.empty_like(self.k_slots)
        super().__init__(
            layers=[
                SlotLayer(self.k_slots[i : i + 1], self.v_slots[i : i + 1])
                for i in range(num_layers)
            ]
        )

    @property
    def position_offset(self) -> int:
        """Next position minus next slot: how many positions have no slot (a draft's cache)."""
        return int(self.layers[0].position_offset)

    @property
    def num_slots(self) -> int:
        """Slots, filled or not."""
        return int(self.k_slots.shape[2])

    @property
    def whole_bytes(self) -> int:
        """Bytes of all slots, in memory or not."""
        return self.k_slots.nbytes + self.v_slots.nbytes

    @property
    def resident_bytes(self) -> int:
        """Bytes that K and V take in memory now."""
        return self.k_slots.untyped_storage().nbytes() + self.v_slots.untyped_storage().nbytes()

    @property
    def is_here(self) -> bool:
        """Whether all of it is in memory and filled as far as its length says."""
        return True

    def free(self) -> None:
        """Give the memory back; the cache is of no use afterwards."""
        self.k_slots, self.v_slots = self.k_slots[:, :, :0].clone(), self.v_slots[:, :, :0].clone()
        for index, layer in enumerate(self.layers):
            layer.keys = self.k_slots[index : index + 1]
            layer.values = self.v_slots[index : index + 1]

    def layer_slots(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's K and V, ``[H, N, D]`` each, filled or not; rows are written there."""
        return self.k_slots[layer], self.v_slots[layer]

    def coded_slots(self, layer: int, start: int) -> tuple[CodedSlots, CodedSlots] | None:
        """Return K and V that lie before slot ``start`` as bytes, where row kernels can read them.

        The slots behind them are then `k_slots` and `v_slots`.
        """
        del layer, start
        return None

    def keep_rows(self, layer: int, start: int, count: int) -> None:
        """Hear that so many rows from slot ``start`` were written to `layer_slots`."""

    def rows(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of slots ``start`` to ``end``, ``[L, H, n, D]`` each."""
        return self.k_slots[:, :, start:end], self.v_slots[:, :, start:end]

    def write_rows(self, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write K and V ``[L, H, n, D]`` from slot ``start`` on; the length stays."""
        end = start + k.shape[2]
        self.k_slots[:, :, start:end] = k
        self.v_slots[:, :, start:end] = v

    @property
    def read_slots(self) -> int:
        """Slots of this dtype that are as many bytes as a step reads."""
        return self.length

    @property
    def length(self) -> int:
        """Filled slots (equal in every layer between forwards)."""
        return int(self.layers[0].length)

    def reserve(self, num_rows: int) -> int:
        """Count ``num_rows`` more slots of every layer as filled; return the first of them."""
        start = self.length
        for layer in self.layers:
            layer.reserve(num_rows)
        return start

    def leave_out(self, num_positions: int) -> None:
        """Count so many positions before the next slot as taken without a slot."""
        for layer in self.layers:
            layer.position_offset = num_positions

    def set_length(self, length: int) -> None:
        """Declare the first ``length`` slots filled, after writing them directly."""
        for layer in self.layers:
            layer.length = length
