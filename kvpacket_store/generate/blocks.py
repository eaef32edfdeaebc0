"""Target forwards of one fixed shape: blocks of rows aligned to the prompt's end.

A row's bits depend on how many rows share its forward and on how many slots there are, but not on
what stands in the rows after it (measured, and tested for every architecture). So if every forward
on the exact K and V is a whole block at a fixed place, one token at a time and many at once give
the same logits, bit for bit. This is ``exactness="bit"``; plain decoding in that mode runs the same
blocks and reads one row of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvpacket_store.models import Model, SlotCache

__all__ = ["BLOCK_ROWS", "AlignedBlocks", "slots_for"]

BLOCK_ROWS = 16


def slots_for(first_slot: int, new_tokens: int, block_rows: int = BLOCK_ROWS) -> int:
    """Return the slots that a cache needs for so many new tokens in whole blocks.

    Examples
    --------
    >>> slots_for(100, 1), slots_for(100, 16), slots_for(100, 17)
    (116, 116, 132)
    """
    return first_slot + -(-new_tokens // block_rows) * block_rows


class AlignedBlocks:
    """Runs blocks of rows after a prompt.

    Parameters
    ----------
    model : Model
        Whose forward it is.
    cache : SlotCache
        The exact K and V of the prompt, with room for whole blocks (`slots_for`).
    block_rows : int
        Rows a block, M.
    """

    def __init__(self, model: Model, cache: SlotCache, block_rows: int = BLOCK_ROWS) -> None:
        self.block_rows = block_rows
        self.first_slot = cache.length
        self._model = model
        self._cache = cache

    def start_of(self, slot: int) -> int:
        """Return the first slot of the block that a slot lies in."""
        return slot - (slot - self.first_slot) % self.block_rows

    def run(self, start: int, token_ids: Sequence[int]) -> torch.Tensor:
        """Run the block at slot ``start``; return logits ``[n, vocab]`` of its n known tokens.

        Rows behind them are filled up with the last one: nothing known sees them. The slots of the
        known tokens then hold their exact K and V, and count as filled; those behind do not.
        """
        known = len(token_ids)
        filled = [*token_ids, *[token_ids[-1]] * (self.block_rows - known)]
        self._cache.set_length(start)
        logits = self._model.forward(tuple(filled), self._cache, keep_logits=self.block_rows)
        self._cache.set_length(start + known)
        return logits[:known]
