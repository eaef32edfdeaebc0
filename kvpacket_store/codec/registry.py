"""Level name → implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kvpacket_store.errors import LevelUnavailableError, UsageError
from kvpacket_store.types import BitArray, KVDtype

from .chunks import StoredChunk, store_fast, store_raw

__all__ = ["LEVELS", "Level", "require_level"]

Level: TypeAlias = Callable[[BitArray, KVDtype], StoredChunk]
"""Stores a contiguous chunk [H, T, D]. Every level's chunks are read by their encoding."""

LEVELS: Mapping[str, Level] = {"raw": store_raw, "fast": store_fast}
_NOT_YET = ("spec",)


def require_level(name: str) -> Level:
    """Return the level of that name.

    Raises
    ------
    LevelUnavailableError
        ``spec``: use ``fast`` now.
    UsageError
        No such level.
    """
    if name in _NOT_YET:
        raise LevelUnavailableError(
            f"codec level {name!r} is not in this version; use level 'fast' now"
        )
    if name not in LEVELS:
        names = ", ".join((*LEVELS, "linear"))
        raise UsageError(f"no codec level {name!r:.80}; pass one of {names}")
    return LEVELS[name]
