"""The teacher: the same model with full attention. Its greedy answers, and their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvpacket_store.models import Model, RowWork, SlotCache
from kvpacket_store.training.samples import Sample
from kvpacket_store.types import TokenIds

__all__ = ["Answer", "Teacher"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer of n tokens, its end included, and the k likeliest tokens at each of them.

    Parameters
    ----------
    token_ids : tuple of int
        n of them, one at least.
    top_ids : int64 ``[n, k]``
        Likeliest first.
    top_logp : float32 ``[n, k]``
        Natural logarithms of their probabilities.
    """

    token_ids: TokenIds
    top_ids: torch.Tensor
    top_logp: torch.Tensor


class Teacher:
    """Answers a sample's questions; packets are read once for all of them.

    Parameters
    ----------
    model : Model
        Frozen.
    answer_tokens : int
        The most tokens of an answer.
    top_k : int
        How many probabilities to keep a token.
    """

    def __init__(self, model: Model, *, answer_tokens: int, top_k: int) -> None:
        self.model = model
        self.answer_tokens = answer_tokens
        self.top_k = min(top_k, int(model.embedding.weight.shape[0]))
        self._step = model.row_forward()

    def answers(self, sample: Sample) -> list[Answer]:
        """Return one answer a question."""
        context = (*sample.preamble, *(i for segment in sample.segments for i in segment))
        shared = self.model.new_cache(len(context))
        if context:
            self.model.forward(context, shared)
        growing = [self._begin(shared, question) for question in sample.questions]
        self._grow(growing)
        return [one.answer() for one in growing]

    def _begin(self, shared: SlotCache, question: TokenIds) -> _Growing:
        cache = self.model.new_cache(shared.length + len(question) + self.answer_tokens)
        cache.write_rows(0, *shared.rows(0, shared.length))
        cache.set_length(shared.length)
        growing = _Growing(cache, self.top_k, [], [], [])
        growing.take(self.model.forward(question, cache)[-1])
        return growing

    def _grow(self, growing: Sequence[_Growing]) -> None:
        """Decode all questions together, each until its answer ends."""
        for _ in range(self.answer_tokens - 1):
            going = [one for one in growing if one.token_ids[-1] not in self.model.eos_ids]
            if not going:
                return
            works = [RowWork(one.cache, (one.token_ids[-1],)) for one in going]
            for one, logits in zip(going, self._step(works), strict=True):
                one.take(logits[-1])


@dataclass(slots=True)
class _Growing:
    """An answer so far."""

    cache: SlotCache
    top_k: int
    token_ids: list[int]
    top_ids: list[torch.Tensor]
    top_logp: list[torch.Tensor]

    def take(self, logits: torch.Tensor) -> None:
        """Take the likeliest next token; the lowest id where two are equal."""
        logp = torch.log_softmax(logits.float(), -1)
        best = torch.topk(logp, self.top_k)
        self.token_ids.append(int(logp.argmax()))
        self.top_ids.append(best.indices.cpu())
        self.top_logp.append(best.values.cpu())

    def answer(self) -> Answer:
        return Answer(tuple(self.token_ids), torch.stack(self.top_ids), torch.stack(self.top_logp))
