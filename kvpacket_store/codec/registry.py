"""Level name → implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kvpacket_store.errors import LevelUnavailableError, UsageError
from kvpacket_store.types import BitArray

from . import fast, raw
from .checksum import Bytes
from .streams import Stream

__all__ = ["LEVELS", "Level", "require_level"]


class Level(Protocol):
    """One chunk (a layer's K or V) ↔ its streams."""

    def encode_chunk(self, chunk: BitArray) -> list[Stream]:
        """Return the streams of a contiguous chunk [H, T, D]."""

    def decode_chunk(self, planes: Sequence[Bytes], out: BitArray) -> None:
        """Write the chunk whose planes these are into ``out`` [H, T, D], of any strides."""


LEVELS: Mapping[str, Level] = {"raw": raw, "fast": fast}
_NOT_YET = ("linear", "spec")


def require_level(name: str) -> Level:
    """Return the level of that name.

    Raises
    ------
    LevelUnavailableError
        ``linear`` and ``spec``: use ``fast`` now.
    UsageError
        No such level.
    """
    if name in _NOT_YET:
        raise LevelUnavailableError(
            f"codec level {name!r} is not in this version; use level 'fast' now"
        )
    if name not in LEVELS:
        raise UsageError(f"no codec level {name!r:.80}; pass one of {', '.join(LEVELS)}")
    return LEVELS[name]
