"""A draft by another model: a smaller one with the same tokenizer, which reads the prompt itself.

Source: speculative decoding (Leviathan et al. 2023, arXiv:2211.17192), with the target's own choice
at each row in place of their rejection sampling, so that an answer is that of plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvpacket_store.generate.answering import Answering, Part
from kvpacket_store.generate.drafts import KVDraft
from kvpacket_store.generate.drive import Run
from kvpacket_store.generate.horizon import FixedHorizon, Horizon
from kvpacket_store.generate.targets import Target
from kvpacket_store.models import Model, RowWork
from kvpacket_store.types import TokenIds

__all__ = ["ModelDraft"]


class ModelDraft:
    """Proposes what a smaller model would say after the same tokens.

    It reads the prompt when it is first asked for something, in a joint prefill of its own: soft
    tokens are another model's, and packets too. Its cache goes back to what was accepted before
    each proposal. A prompt that is longer than it knows, or has ids that it has not: it proposes
    nothing.

    Parameters
    ----------
    model : Model
        With the tokenizer of the request's model.
    run : callable
        Runs its forwards, logits ``[vocab]`` being of the request's model's width. The same one for
        all requests, whose drafts then share its passes.
    prompt_ids : token ids
        The prompt without soft tokens.
    new_tokens : int
        Longest answer.
    horizon : Horizon
        How many tokens to propose.
    """

    def __init__(
        self,
        model: Model,
        run: Run,
        prompt_ids: TokenIds,
        new_tokens: int,
        horizon: Horizon | FixedHorizon,
    ) -> None:
        self._model, self._run = model, run
        self._prompt_ids = prompt_ids
        self.horizon = horizon
        self._num_slots = min(len(prompt_ids) + new_tokens, model.max_positions)
        self._vocabulary = int(model.embedding.weight.shape[0])
        self._can_read = len(prompt_ids) < self._num_slots and self._knows(prompt_ids)
        self._inner: KVDraft | None = None

    @property
    def resident_bytes(self) -> int:
        """Bytes of its K and V; those that it would take, before it has any."""
        return self._model.cache_bytes(self._num_slots) if self._can_read else 0

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
        """See `Draft`."""
        target.fetch()  # may come while the prompt is read
        self._can_read = self._can_read and self._knows(answering.token_ids)
        if not self._can_read or count <= 0:
            return []
        if self._inner is None:
            if self.horizon.count(answering.company) <= 0:
                return []
            self._inner = yield from self._read(answering)
        return (yield from self._inner.propose(answering, fresh, count, target))

    def learn(self, proposed: int, accepted: int) -> None:
        """Let the horizon follow."""
        (self._inner or self.horizon).learn(proposed, accepted)

    def gain(self, requests: int) -> float:
        """Return the tokens per plain step that are expected of the next draft; 0 where none is."""
        return self.horizon.gain(requests) if self._can_read else 0.0

    def _read(self, answering: Answering) -> Part[KVDraft]:
        answering.raise_if_cancelled()
        cache = self._model.new_cache(self._num_slots)
        logits: torch.Tensor = yield RowWork(cache, self._prompt_ids, is_prompt=True, run=self._run)
        return KVDraft(cache, self.horizon, logits[-1], takes_rows=False, run=self._run)

    def _knows(self, token_ids: Sequence[int]) -> bool:
        return max(token_ids, default=0) < self._vocabulary
