"""Which chunks a record has, and in what order (``docs/format.md`` §3)."""

from __future__ import annotations

import itertools
from typing import NamedTuple

__all__ = ["Chunk", "block_tokens", "chunks_of", "num_blocks"]

BLOCK_TOKENS = 256


class Chunk(NamedTuple):
    """Which part of a record: a layer's K (``side`` 0) or V (1), and a block of its tokens."""

    layer: int
    side: int
    block: int


def num_blocks(num_tokens: int) -> int:
    """Return into how many blocks a layer's tokens are cut: of 256, the last of 128 to 383."""
    return max((num_tokens + BLOCK_TOKENS // 2) // BLOCK_TOKENS, 1)


def block_tokens(num_tokens: int, block: int) -> slice:
    """Return the tokens of a block."""
    start = block * BLOCK_TOKENS
    last = block == num_blocks(num_tokens) - 1
    return slice(start, num_tokens if last else start + BLOCK_TOKENS)


def chunks_of(shape: tuple[int, int, int, int]) -> list[Chunk]:
    """Return all chunks of a record of that shape, in the order of its table."""
    blocks = range(num_blocks(shape[2]))
    return [Chunk(*chunk) for chunk in itertools.product(range(shape[0]), range(2), blocks)]
