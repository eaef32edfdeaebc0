"""The checksum of ``docs/format.md``: xxh3_64. It catches accidents, and is never identity."""

from __future__ import annotations

from typing import TypeAlias

import xxhash

__all__ = ["Bytes", "checksum"]

Bytes: TypeAlias = bytes | bytearray | memoryview


def checksum(data: Bytes) -> int:
    """Return xxh3_64 with seed 0 over contiguous ``data``, as an unsigned integer.

    Examples
    --------
    >>> hex(checksum(b""))
    '0x2d06800538d394c2'
    """
    return xxhash.xxh3_64_intdigest(data)
