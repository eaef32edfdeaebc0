"""What this machine can promise: do rows keep their bits in company, and if not, how far are they.

Run once a model and process. One-token decoding, a forward of many rows and a block whose last
rows are filler are compared on a short text.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from kvpacket_store.api.findings import Check
from kvpacket_store.models import Model, RowWork
from kvpacket_store.types import Report

__all__ = ["Exactness", "check_exactness", "exactness_of", "measure_exactness", "promises_of"]

_PROMPT_TOKENS = 48
_ROWS = 12
_SAFETY = 4.0
"""The guard is so many times the largest difference seen: 12 rows of one text see little of it."""

_found: weakref.WeakKeyDictionary[Model, Exactness] = weakref.WeakKeyDictionary()
_measuring = threading.Lock()


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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the guard."""
        # by name: a dataclass with slots is not the class that super() would look in
        return {**Report.to_dict(self), "guard_logits": self.guard_logits}


def exactness_of(model: Model) -> Exactness:
    """Return what `measure_exactness` finds; measured by whoever asks first in this process."""
    with _measuring:
        found = _found.get(model)
        if found is None:
            found = _found[model] = measure_exactness(model)
        return found


def promises_of(model: Model) -> dict[str, bool]:
    """Return which promise is kept here: ``bit``, and ``guarded`` as far as its guard is wide."""
    found = exactness_of(model)
    has_fallbacks = not model.rows_are_alike  # else rows are verified in any shape, unguarded
    return {
        "bit": found.rows_alike or (found.blocks_alike and has_fallbacks),
        "guarded": found.rows_alike or has_fallbacks,
    }


def check_exactness(model: Model) -> Check:
    """Say which promise of exactness holds here, and what to do where none does."""
    found = exactness_of(model)
    guard = f"within {2 * found.guard_logits:.2g} logits of a tie"  # both may move
    if found.rows_alike:
        detail = "a row has the same bits alone and among others: bit and guarded are both exact"
        return Check("exactness", "info", ok=True, detail=detail)
    if found.blocks_alike and not model.rows_are_alike:
        detail = f"blocks of fixed shape are exact (bit); guarded decides rows {guard} again"
        return Check("exactness", "info", ok=True, detail=detail)
    detail = f"a row's bits depend on its company, by up to {found.largest_difference:.2g} logits"
    remedy = f"take --decode full, which verifies nothing; guarded decides rows {guard} again"
    if model.rows_are_alike:
        remedy = "take --decode full, which verifies nothing, and report this processor"
    return Check("exactness", "warning", False, detail, remedy)


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
