"""Prompt lookup: a draft without a model. What followed the last tokens before may follow again.

Answers from documents quote them, so the request's own tokens are a good guess. Source: prompt
lookup decoding (Saxena 2023); the n-gram index and continuing over the end are ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["LookupDraft"]

# n-grams; about 250 bytes each with its key, so 32 MB. Three lengths of 40,000 tokens fit.
_MOST_ENTRIES = 1 << 17


class LookupDraft:
    """Proposes what followed the most recent occurrence of the last n tokens, the longest n first.

    Parameters
    ----------
    prompt_token_ids : sequence of int
        The whole prompt. Placeholders at soft tokens do no harm: a proposal may be wrong.
    longest, shortest : int
        How many last tokens must have occurred together before.

    Examples
    --------
    >>> draft = LookupDraft([1, 2, 3, 4, 9], shortest=2)
    >>> draft.propose([2, 3], position=6, count=3)
    [4, 9, 2]
    >>> draft.propose([7], position=7, count=3)
    []
    """

    def __init__(
        self, prompt_token_ids: Sequence[int], *, longest: int = 4, shortest: int = 2
    ) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-grams of {shortest} to {longest} tokens; 1 ≤ shortest ≤ longest")
        self._lengths = range(longest, shortest - 1, -1)
        self._token_ids: list[int] = []
        self._ends: OrderedDict[tuple[int, ...], int] = OrderedDict()  # n-gram → where it ends
        fitting = _MOST_ENTRIES // len(self._lengths)
        self._extend(prompt_token_ids[-fitting:])

    def propose(self, token_ids: Sequence[int], position: int, count: int) -> list[int]:
        """Return up to ``count`` tokens after ``token_ids``, none where nothing matches.

        A repetition is continued over the end of what is known.

        Parameters
        ----------
        token_ids : sequence of int
            Final tokens since the last call, or since the prompt.
        position : int
            Not needed: tokens come in order.
        count : int
            Most tokens wanted.
        """
        del position
        self._extend(token_ids)
        known = len(self._token_ids)
        end = self._match()
        if end is None:
            return []
        proposed: list[int] = []
        for place in range(end, end + count):
            proposed.append(self._token_ids[place] if place < known else proposed[place - known])
        return proposed

    def _extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens; an n-gram is indexed once a token follows it, so none matches itself."""
        for token_id in token_ids:
            for length in self._lengths:
                if length <= len(self._token_ids):
                    self._index(tuple(self._token_ids[-length:]))
            self._token_ids.append(token_id)

    def _index(self, gram: tuple[int, ...]) -> None:
        self._ends[gram] = len(self._token_ids)
        self._ends.move_to_end(gram)
        if len(self._ends) > _MOST_ENTRIES:
            self._ends.popitem(last=False)

    def _match(self) -> int | None:
        """Return where the most recent occurrence of the longest known last n-gram ends."""
        for length in self._lengths:
            if length <= len(self._token_ids):
                end = self._ends.get(tuple(self._token_ids[-length:]))
                if end is not None:
                    return end
        return None
