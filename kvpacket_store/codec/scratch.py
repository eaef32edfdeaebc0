"""Memory that a thread keeps between chunks.

A fresh array a chunk is mapped, zeroed and unmapped by the kernel each time: measured 424 µs for
merging a chunk of 98,304 scalars, against 130 µs in memory that is kept.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import numpy.typing as npt

from kvpacket_store.types import BitArray

__all__ = ["scratch"]

_MAX_KEPT_BYTES = 1 << 22
_local = threading.local()


def scratch(slot: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> BitArray:
    """Return an array of undefined contents, valid until this thread asks for the slot again.

    Parameters
    ----------
    slot : str
        Arrays of different slots do not overlap.
    shape, dtype
        Of the array; above 4 MiB it is a fresh one, so that no thread sits on more.
    """
    wanted_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    kept: npt.NDArray[np.uint8] | None = getattr(_local, slot, None)
    if kept is None or kept.nbytes < wanted_bytes:
        kept = np.empty(wanted_bytes, np.uint8)
        if wanted_bytes <= _MAX_KEPT_BYTES:
            setattr(_local, slot, kept)
    return kept[:wanted_bytes].view(dtype).reshape(shape)
