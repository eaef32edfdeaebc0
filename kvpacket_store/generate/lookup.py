"""Prompt lookup: a draft without a model. What followed the last tokens before may follow again.

Answers from documents quote them, so the request's own tokens are a good guess. Source: prompt
lookup decoding (Saxena 2023); the n-gram index and continuing over the end are ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = ["ACCEPTED_AFTER", "Match", "NGramIndex"]

# n-grams; about 250 bytes each with its key, so 32 MB. Four lengths of 32,000 tokens fit.
_MOST_ENTRIES = 1 << 17

ACCEPTED_AFTER = {2: 0.3, 3: 0.4, 4: 0.5, 8: 0.85}
"""How many last tokens must have occurred together before, and what share of first tokens after
them is right, between greedy answers and T = 0.8."""


@dataclass(frozen=True, slots=True)
class Match:
    """The last ``length`` tokens occurred before, and ended at token ``end``."""

    length: int
    end: int


class NGramIndex:
    """One request's tokens, and where each n-gram of them ended last.

    Parameters
    ----------
    token_ids : sequence of int
        The whole prompt. Placeholders at soft tokens do no harm: a proposal may be wrong.
    lengths : collection of int
        Of n-grams.

    Examples
    --------
    >>> index = NGramIndex([1, 2, 3, 4, 9])
    >>> index.extend([2, 3])
    >>> index.match()
    Match(length=2, end=3)
    >>> index.after(index.match(), 3)
    [4, 9, 2]
    >>> index.extend([7])
    >>> index.match() is None
    True
    """

    def __init__(
        self, token_ids: Sequence[int], lengths: Collection[int] = tuple(ACCEPTED_AFTER)
    ) -> None:
        if not lengths or min(lengths) < 1:
            raise ValueError(f"n-grams of {lengths} tokens; each has one at least")
        self._lengths = sorted(set(lengths), reverse=True)
        self._token_ids: list[int] = []
        self._ends: OrderedDict[tuple[int, ...], int] = OrderedDict()  # n-gram → where it ends
        fitting = _MOST_ENTRIES // len(self._lengths)
        self.extend(token_ids[-fitting:])

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens; an n-gram is indexed once a token follows it, so none matches itself."""
        for token_id in token_ids:
            for length in self._lengths:
                if length <= len(self._token_ids):
                    self._index(tuple(self._token_ids[-length:]))
            self._token_ids.append(token_id)

    def match(self) -> Match | None:
        """Return the most recent occurrence of the longest known last n-gram."""
        for length in self._lengths:
            if length <= len(self._token_ids):
                end = self._ends.get(tuple(self._token_ids[-length:]))
                if end is not None:
                    return Match(length, end)
        return None

    def after(self, match: Match, count: int) -> list[int]:
        """Return ``count`` tokens after a match; a repetition goes on over the end of all."""
        known, found = len(self._token_ids), list[int]()
        for place in range(match.end, match.end + count):
            found.append(self._token_ids[place] if place < known else found[place - known])
        return found

    def _index(self, gram: tuple[int, ...]) -> None:
        self._ends[gram] = len(self._token_ids)
        self._ends.move_to_end(gram)
        if len(self._ends) > _MOST_ENTRIES:
            self._ends.popitem(last=False)
