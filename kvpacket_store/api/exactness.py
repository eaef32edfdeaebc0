"""What this machine can promise: do rows keep their bits in company, and if not, how far are they.

Run once a model and process. One-token decoding, a forward of many rows and a block whose last
rows are filler are compared on a short text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvpacket_store.models import Model, RowWork
from kvpacket_store.types import Report

__all__ = ["Exactness", "measure_exactness"]

_PROMPT_TOKENS = 48
_ROWS = 12
_SAFETY = 4.0
"""The guard is so many times the largest difference seen: 12 rows of one text see little of it."""


@dataclass(frozen=True, slots=True)
class Exactness(Report):
    """What was found.

    Parameters
    ----------
    rows_alike : bool
        A row has the same bits alone and among others: verification is exact in any shape.
    blocks_alike : bool
        A row has the same bits whatever stands behind it in a block of fixed shape: ``bit`` holds.
    largest_difference : float
        Between a row's logits alone and among others.
    """

    rows_alike: bool
    blocks_alike: bool
    largest_difference: float

    @property
    def guard_logits(self) -> float:
        """How far logits of two shapes may be apart; 0 where they are not."""
        return _SAFETY * self.largest_difference


def measure_exactness(model: Model) -> Exactness:
    """Compare the shapes that decoding uses."""
    vocabulary = int(model.embedding.weight.shape[0])
    ids = tuple((7919 * i + 13) % vocabulary for i in range(_PROMPT_TOKENS + _ROWS))
    prompt, tokens = ids[:_PROMPT_TOKENS], ids[_PROMPT_TOKENS:]
    cache = model.new_cache(len(ids))
    model.forward(prompt, cache)
    run = model.row_forward()

    def rows(parts: list[tuple[int, ...]]) -> torch.Tensor:
        cache.set_length(_PROMPT_TOKENS)
        return torch.cat([run((RowWork(cache, part, len(part)),))[0] for part in parts])

    alone = rows([(token,) for token in tokens])
    together = rows([tokens])
    half = _ROWS // 2
    filled = rows([(*tokens[:half], *[tokens[0]] * half)])
    return Exactness(
        rows_alike=model.rows_are_alike and torch.equal(alone, together),
        blocks_alike=torch.equal(together[:half], filled[:half]),
        largest_difference=float((alone - together).abs().max()),
    )
