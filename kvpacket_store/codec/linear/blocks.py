"""All chunks of one block of tokens, in the order in which they are each other's context."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.codec.checksum import Bytes
from kvpacket_store.codec.frame import MAX_RATIO
from kvpacket_store.types import BitArray, KVDtype

from .body import (
    Place,
    decode_parts,
    encode_parts,
    let_be_context,
    new_context,
    split_parts,
)
from .prepared import Prepared
from .values import coded_half

__all__ = ["BlockDecoder", "EncodedChunk", "encode_block"]

_NOTHING = np.empty((0, 0, 0), np.uint16)
Settings = tuple[int, ...]


class EncodedChunk(NamedTuple):
    """A chunk's two parts, or neither where they would not be shorter than its items."""

    base: bytes | None
    enhancement: bytes | None


def encode_block(
    prepared: Prepared, settings: Settings, chunks: Callable[[int, int], BitArray]
) -> Iterator[EncodedChunk]:
    """Yield the parts of every layer's K and V; ``chunks(layer, side)`` gives items [H, T, D]."""
    shape, kv_dtype = prepared.pack.shape, prepared.pack.kv_dtype
    context: npt.NDArray[np.int8] | None = None
    for layer, side in itertools.product(range(shape.layers), range(2)):
        items = chunks(layer, side)
        if context is None:
            context = new_context(prepared, items.shape[1])
        place = Place(layer, side, settings[2 * layer + side])
        upper = coded_half(items, kv_dtype)
        parts = encode_parts(upper, prepared, place, context) if items.size else None
        if parts is not None:
            parts = parts[0], parts[1] + _lower_half(items, kv_dtype)
        if parts is None or not _are_worth_it(parts, items.nbytes):
            let_be_context(upper, prepared, place, context)
            yield EncodedChunk(None, None)
        else:
            yield EncodedChunk(*parts)


def _are_worth_it(parts: tuple[bytes, bytes], num_bytes: int) -> bool:
    """Return whether parts are shorter than the items, and none so short that readers refuse it."""
    return sum(map(len, parts)) < num_bytes <= MAX_RATIO * min(map(len, parts))


def _lower_half(items: BitArray, kv_dtype: KVDtype) -> bytes:
    return items.astype("<u2").tobytes() if kv_dtype is KVDtype.FP32 else b""


class BlockDecoder:
    """Decodes a block's chunks one by one, by layer and K before V: each is the next one's context.

    Context is kept of the layers that a prediction looks back at, and of the one at hand.

    Parameters
    ----------
    prepared : Prepared
        Of the pack that the block was coded with.
    settings : tuple of int
        By layer and side.
    num_tokens : int
        Of the block.
    """

    def __init__(self, prepared: Prepared, settings: Settings, num_tokens: int) -> None:
        self.prepared, self.settings, self.num_tokens = prepared, settings, num_tokens
        shape = prepared.pack.shape
        self._context = new_context(prepared, num_tokens, min(shape.back + 1, shape.layers))
        self._first_layer = 0
        self._size = (shape.heads, num_tokens, shape.head_dim)

    def whole(self, layer: int, side: int, stored: Bytes) -> BitArray:
        """Return the items [H, T, D] of a chunk that is stored with both parts."""
        return self.exact(layer, side, *split_parts(stored, self.num_tokens))

    def exact(self, layer: int, side: int, base: Bytes, enhancement: Bytes) -> BitArray:
        """Return the items [H, T, D] of a chunk from both parts."""
        return self._decode(layer, side, base, enhancement, False)[0]

    def both(self, layer: int, side: int, base: Bytes, enhancement: Bytes) -> list[BitArray]:
        """Return the items, and those rebuilt from the base."""
        return self._decode(layer, side, base, enhancement, True)

    def base(self, layer: int, side: int, base: Bytes) -> BitArray:
        """Return the items [H, T, D] as the base alone gives them."""
        return self._decode(layer, side, base, None, True)[1]

    def unpredicted(self, layer: int, side: int, items: BitArray) -> None:
        """Let a chunk that was stored otherwise be context."""
        upper = coded_half(items, self.prepared.pack.kv_dtype)
        let_be_context(upper, self.prepared, self._place(layer, side), self._context)

    def _place(self, layer: int, side: int) -> Place:
        shape = self.prepared.pack.shape
        first = max(layer - shape.back, 0)
        if first > self._first_layer:  # rows that nothing to come looks at make way
            gone = (first - self._first_layer) * shape.padded
            for tile in self._context:
                tile[:-gone] = tile[gone:]
            self._first_layer = first
        return Place(layer, side, self.settings[2 * layer + side], first)

    def _decode(
        self, layer: int, side: int, base: Bytes, enhancement: Bytes | None, rebuild: bool
    ) -> list[BitArray]:
        kv_dtype = self.prepared.pack.kv_dtype
        low: Bytes = b""
        if enhancement is not None and kv_dtype is KVDtype.FP32:
            view = memoryview(enhancement)
            cut = max(len(view) - 2 * int(np.prod(self._size)), 0)
            enhancement, low = view[:cut], view[cut:]
        outs = (
            _NOTHING if enhancement is None else np.empty(self._size, np.uint16),
            np.empty(self._size, np.uint16) if rebuild else _NOTHING,
        )
        place = self._place(layer, side)
        decode_parts((base, enhancement), self.prepared, place, self._context, outs)
        return [_joined(out, half, kv_dtype) for out, half in zip(outs, (low, b""), strict=True)]


def _joined(upper: BitArray, lower: Bytes, kv_dtype: KVDtype) -> BitArray:
    if kv_dtype is not KVDtype.FP32:
        return upper.astype(kv_dtype.bits_dtype, copy=False)
    items = upper.astype(np.uint32) << np.uint32(16)
    if len(lower) == 2 * items.size:
        items |= np.frombuffer(lower, "<u2").reshape(items.shape)
    return items
