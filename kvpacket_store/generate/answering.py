"""One request's decoding as a coroutine: it asks for forwards and gives tokens.

Who runs the forwards is another matter (`drive.py`): one request alone, or many together in one
pass over the weights.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import torch

from kvpacket_store.errors import CancelledError
from kvpacket_store.generate.choice import Choice
from kvpacket_store.generate.logprobs import TokenLogprob, token_logprob
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.sampling import Sampler
from kvpacket_store.models import RowWork

__all__ = ["Answering", "Asked", "Decoding", "Final", "Part", "Provisional", "Wait"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Final:
    """A token that stays."""

    token_id: int


@dataclass(frozen=True, slots=True)
class Provisional:
    """A drafted token; the next final ones may be others."""

    token_id: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to run until ``is_over``."""

    is_over: Callable[[], bool]


Asked: TypeAlias = RowWork | Wait | Final | Provisional
"""What a decoding gives to whoever drives it."""

Part: TypeAlias = Generator[Asked, torch.Tensor, _Result]
"""A part of a decoding: sent the logits ``[keep_logits, vocab]`` of each `RowWork`, and None after
all else; it returns its result."""

Decoding: TypeAlias = Part[None]
"""A whole one."""


@dataclass(slots=True)
class Answering:
    """What stays the same while one request is answered, and its final tokens so far.

    Parameters
    ----------
    sampler : Sampler
        Chooses tokens, for the target and for drafts.
    options : GenerationOptions
        When to end.
    prompt_token_ids : sequence of int
        An id for every position of the prompt, which a repetition penalty applies to. At soft
        tokens it is a placeholder that occurs in the preamble too, so it adds nothing.
    eos_ids : frozenset of int
        End the answer and are not given out, unless ``options.ignore_eos``.
    cancel : threading.Event, optional
        Checked before each forward.
    company : int
        How many requests share forwards with this one, itself included; whoever drives it says so.
    """

    sampler: Sampler
    options: GenerationOptions
    prompt_token_ids: Sequence[int]
    eos_ids: frozenset[int]
    cancel: threading.Event | None = None
    company: int = 1
    token_ids: list[int] = field(default_factory=list)
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    """By place in the answer, where the options ask for them."""

    @property
    def left(self) -> int:
        """How many more tokens the answer may have."""
        return self.options.max_new_tokens - len(self.token_ids)

    def ends_with(self, token_id: int) -> bool:
        """Whether the answer is over before this token."""
        return token_id in self.eos_ids and not self.options.ignore_eos

    def choose(self, logits: torch.Tensor, ahead: Sequence[int] = ()) -> Choice:
        """Return the token after the final ones and ``ahead``, given logits ``[vocab]``."""
        position = len(self.prompt_token_ids) + len(self.token_ids) + len(ahead)
        previous: Sequence[int] = ()
        if self.sampler.looks_back:
            previous = [*self.prompt_token_ids, *self.token_ids, *ahead]
        return self.sampler.choose(logits, position, previous)

    def decide(self, logits: torch.Tensor, ahead: Sequence[int] = ()) -> Choice:
        """Choose, as the target does: what logits say of the choice is kept where it is asked for.

        A place that is decided again has what was said last.
        """
        choice, wanted = self.choose(logits, ahead), self.options.logprobs
        if wanted is not None:
            place = len(self.token_ids) + len(ahead)
            self.logprobs[place] = token_logprob(logits, choice.token_id, wanted)
        return choice

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has gone."""
        return self.cancel is not None and self.cancel.is_set()

    def raise_if_cancelled(self) -> None:
        """Stop here if the caller has gone.

        Raises
        ------
        CancelledError
            ``cancel`` was set.
        """
        if self.is_cancelled:
            raise CancelledError("the request was cancelled")
