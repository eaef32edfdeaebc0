"""How much a record may make of memory, and what counts as a record's bytes."""

from __future__ import annotations

from kvpacket_store.errors import CorruptRecordError, UsageError

from .checksum import Bytes
from .frame import Frame

__all__ = ["DEFAULT_MAX_BYTES", "require_allowed", "view_of"]

DEFAULT_MAX_BYTES = 8 << 30


def view_of(record: Bytes) -> memoryview:
    """Return ``record`` as a flat view of bytes."""
    try:
        return memoryview(record).cast("B")
    except TypeError:
        raise UsageError("a record must be contiguous bytes; pass bytes or a memoryview") from None


def require_allowed(frame: Frame, max_bytes: int) -> None:
    """Raise CorruptRecordError for a record of more K and V than the caller wants to hold."""
    if frame.raw_bytes > max_bytes:
        raise CorruptRecordError(
            f"record declares {frame.raw_bytes} bytes of K and V, over max_bytes={max_bytes}; "
            "pass a higher max_bytes if that is right"
        )
