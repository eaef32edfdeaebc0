"""Plain decoding: one token a step on the exact K and V. The reference of every other mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch

from kvpacket_store.errors import CancelledError
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.sampling import Sampler

__all__ = ["Step", "decode_tokens"]

Step: TypeAlias = Callable[[int], torch.Tensor]
"""Appends one token to the cache and returns the next logits ``[vocab]``."""


def decode_tokens(
    step: Step,
    logits: torch.Tensor,
    sampler: Sampler,
    options: GenerationOptions,
    *,
    prompt_token_ids: Sequence[int],
    eos_ids: frozenset[int],
    cancel: threading.Event | None = None,
) -> Iterator[int]:
    """Yield token ids until the end of sequence, the limit, or cancellation.

    Parameters
    ----------
    step : Step
        See above.
    logits : float [vocab]
        Of the prompt's last row.
    sampler, options
        How to choose, and when to end.
    prompt_token_ids : sequence of int
        An id for every position of the prompt, which a repetition penalty applies to. At soft
        tokens it is a placeholder that occurs in the preamble too, so it adds nothing.
    eos_ids : frozenset of int
        Not yielded, unless ``options.ignore_eos``.
    cancel : threading.Event, optional
        Checked before each step.

    Raises
    ------
    CancelledError
        ``cancel`` was set.
    """
    previous = [*prompt_token_ids] if sampler.looks_back else []
    for index in range(options.max_new_tokens):
        if cancel is not None and cancel.is_set():
            raise CancelledError("the request was cancelled")
        token_id = sampler.pick(logits, len(prompt_token_ids) + index, previous)
        if token_id in eos_ids and not options.ignore_eos:
            return
        yield token_id
        if sampler.looks_back:
            previous.append(token_id)
        if index + 1 < options.max_new_tokens:
            logits = step(token_id)
