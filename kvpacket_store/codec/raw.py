"""Level ``raw``: the bits as they are, one plane a chunk. Always works."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvpacket_store.types import BitArray

from .checksum import Bytes
from .streams import Stream, store_plane

__all__ = ["decode_chunk", "encode_chunk"]


def encode_chunk(chunk: BitArray) -> list[Stream]:
    """Return the one stream of a contiguous chunk [H, T, D]."""
    return [store_plane(chunk)]


def decode_chunk(planes: Sequence[Bytes], out: BitArray) -> None:
    """Write the chunk whose planes these are into ``out`` [H, T, D], of any strides."""
    np.copyto(out, np.frombuffer(planes[0], out.dtype).reshape(out.shape))
