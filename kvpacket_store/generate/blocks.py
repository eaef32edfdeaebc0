"""Target forwards of one fixed shape: blocks of rows aligned to the prompt's end.

For models and devices whose rows' bits depend on how many rows share a forward and on how many
slots there are, but not on what stands in the rows after (measured, and tested for every
architecture). If every forward on the exact K and V is a whole block at a fixed place, one token at
a time and many at once give the same logits, bit for bit: ``exactness="bit"``. Plain decoding in
that mode runs the same blocks and reads one row of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvpacket_store.generate.answering import Answering, Part
from kvpacket_store.generate.targets import PinnedTarget
from kvpacket_store.models import RowWork, SlotCache

__all__ = ["BLOCK_ROWS", "BlockTarget", "slots_for"]

BLOCK_ROWS = 16


def slots_for(first_slot: int, new_tokens: int, block_rows: int = BLOCK_ROWS) -> int:
    """Return the slots that a cache needs for so many new tokens in whole blocks.

    Examples
    --------
    >>> slots_for(100, 1), slots_for(100, 16), slots_for(100, 17)
    (116, 116, 132)
    """
    return first_slot + -(-new_tokens // block_rows) * block_rows


class BlockTarget(PinnedTarget):
    """Verifies by running the whole block that the last final token lies in.

    Parameters
    ----------
    cache, logits
        See `PinnedTarget`; with room for whole blocks (`slots_for`).
    block_rows : int
        Rows a block, M.
    """

    def __init__(
        self, cache: SlotCache, logits: torch.Tensor, block_rows: int = BLOCK_ROWS
    ) -> None:
        super().__init__(cache, logits)
        self._block_rows = block_rows
        self._first_slot = cache.length
        self._block: list[int] = []  # final tokens of the block that the next slot lies in

    def room(self) -> int:
        """Return how many rows the block has behind the last final token."""
        return self._block_rows - 1 - (self.cache.length - self._first_slot) % self._block_rows

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Part[list[int]]:
        """See `Target`."""
        slot = self.cache.length
        start = slot - (slot - self._first_slot) % self._block_rows
        block = [*self._block, *fresh]
        block = block[len(block) - (slot - start) - 1 :]
        rows = yield self._whole(start, [*block, *proposed])
        self._block = block  # not before: where the forward fails, this is called again
        first = len(block) - 1
        chosen = _accepted(answering, rows[first : first + 1 + len(proposed)], proposed)
        self.cache.set_length(slot + len(chosen))
        return chosen

    def _whole(self, start: int, token_ids: Sequence[int]) -> RowWork:
        """Return the work of a block; rows behind the known tokens are filled with the last one.

        Nothing known sees them, and their slots do not count as filled afterwards.
        """
        filler = [token_ids[-1]] * (self._block_rows - len(token_ids))
        self.cache.set_length(start)
        return RowWork(self.cache, [*token_ids, *filler], self._block_rows)


def _accepted(answering: Answering, rows: torch.Tensor, proposed: Sequence[int]) -> list[int]:
    """Return the choices that rows ``[1 + n, vocab]`` lead to, the first wrong proposal's last."""
    chosen: list[int] = []
    for index, row in enumerate(rows):
        chosen.append(answering.decide(row, chosen).token_id)
        if index == len(proposed) or proposed[index] != chosen[-1]:
            break
    return chosen
