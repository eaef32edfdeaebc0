"""Put a packet's K and V into slots, keys rotated to their positions."""

from __future__ import annotations

import torch

from kvpacket_store.assemble.correct import Correct
from kvpacket_store.models import Model, SlotCache, Transfer
from kvpacket_store.types import BitArray, KVDtype

__all__ = ["place", "place_layer"]


@torch.inference_mode()
def place(
    model: Model,
    cache: SlotCache,
    k: BitArray,
    v: BitArray,
    *,
    kv_dtype: KVDtype,
    start: int,
    correct: Correct | None = None,
) -> None:
    """Write ``k`` (before RoPE) and ``v``, bits ``[L, H, T, D]``, to slots ``start`` onwards.

    The key that lands in a slot is bit for bit the one that the model computes at that position:
    its own function on the same numbers (reference: the model's forward; test:
    tests/unit/assemble), unless ``correct`` changes K and V before. Does not change the cache's
    length.
    """
    count = k.shape[2]
    if count == 0:
        return
    positions = torch.arange(start, start + count, device=model.device)
    transfer = Transfer(model, kv_dtype)
    keys, values = transfer.rows(k), transfer.rows(v)
    if correct is not None:  # layer by layer, as `place_layer` does: the same bits
        pairs = [correct(layer, keys[layer], values[layer]) for layer in range(len(keys))]
        keys, values = (torch.stack(side) for side in zip(*pairs, strict=True))
    cache.k_slots[:, :, start : start + count] = model.rotate_keys(keys, positions)
    cache.v_slots[:, :, start : start + count] = values


@torch.inference_mode()
def place_layer(
    transfer: Transfer,
    cache: SlotCache,
    layer: int,
    k: BitArray,
    v: BitArray,
    *,
    start: int,
    correct: Correct | None = None,
) -> None:
    """Write one layer's ``k`` and ``v``, bits ``[H, T, D]``: the bits that `place` writes.

    On the stream of ``transfer`` where it has one and is running; the slots are filled once what
    `Transfer.sent` returns was waited for.
    """
    count = k.shape[1]
    if count == 0:
        return
    model = transfer.model
    positions = torch.arange(start, start + count, device=model.device)
    keys, values = transfer.rows(k), transfer.rows(v)
    if correct is not None:
        keys, values = correct(layer, keys, values)
    cache.k_slots[layer, :, start : start + count] = model.rotate_layer(keys, positions, layer)
    cache.v_slots[layer, :, start : start + count] = values
