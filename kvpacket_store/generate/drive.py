"""Who runs the forwards of decodings: one alone, or many in one pass over the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from kvpacket_store.errors import KVPacketError, SwapFailedError
from kvpacket_store.generate.answering import Decoding, Final, Provisional, Wait
from kvpacket_store.models import RowWork

__all__ = ["Failed", "Finished", "Run", "decode_alone", "decode_together"]

Run: TypeAlias = Callable[[Sequence[RowWork]], list[torch.Tensor]]
"""As ``Model.row_forward()`` returns it."""

_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Finished:
    """A request has given all of its tokens."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request ended with an error; others go on."""

    error: KVPacketError


def decode_alone(decoding: Decoding, run: Run) -> Iterator[Final | Provisional]:
    """Run one request to its end. Errors of the request are raised."""
    event = next(decoding, None)
    while event is not None:
        answer: torch.Tensor | None = None
        if isinstance(event, RowWork):
            try:
                answer = run((event,))[0]
            except SwapFailedError as error:
                event = _thrown(decoding, error)
                continue
        elif isinstance(event, Wait):
            event.block()
        else:
            yield event
        event = _next(decoding, answer)


def decode_together(
    decodings: Sequence[Decoding], run: Run
) -> Iterator[tuple[int, Final | Provisional | Finished | Failed]]:
    """Run many requests; their drafts and verifications share forwards.

    A request that waits for its exact K and V holds up none; one that ends or fails leaves.

    Yields
    ------
    tuple of int and event
        The request's place in ``decodings``, and what it gave.
    """
    asked: dict[int, RowWork | Wait | None] = dict.fromkeys(range(len(decodings)))
    answers: dict[int, torch.Tensor] = {}
    while asked:
        for index in list(asked):
            waiting = asked[index]
            if isinstance(waiting, Wait) and not waiting.is_over():
                continue
            yield from _advance(index, decodings[index], answers.pop(index, None), asked)
        works = {i: event for i, event in asked.items() if isinstance(event, RowWork)}
        if works:
            answers = dict(zip(works, run(list(works.values())), strict=True))
        elif asked:
            _wait_a_little([event for event in asked.values() if isinstance(event, Wait)])


def _advance(
    index: int,
    decoding: Decoding,
    answer: torch.Tensor | None,
    asked: dict[int, RowWork | Wait | None],
) -> Iterator[tuple[int, Final | Provisional | Finished | Failed]]:
    """Go on with one request until it asks for something; write down what."""
    waiting = asked[index]
    try:
        if isinstance(waiting, Wait):
            waiting.block()
        event = _next(decoding, answer)
        while event is not None and not isinstance(event, RowWork | Wait):
            yield index, event
            event = _next(decoding, None)
    except KVPacketError as error:
        del asked[index]
        yield index, Failed(error)
        return
    if event is None:
        del asked[index]
        yield index, Finished()
    else:
        asked[index] = event


def _next(
    decoding: Decoding, answer: torch.Tensor | None
) -> RowWork | Wait | Final | Provisional | None:
    try:
        # a fresh coroutine is sent None, and so is one that was given no logits
        return decoding.send(answer)  # type: ignore[arg-type]
    except StopIteration:
        return None


def _thrown(
    decoding: Decoding, error: SwapFailedError
) -> RowWork | Wait | Final | Provisional | None:
    """Let a decoding hear that its forward failed; it asks again, or raises."""
    try:
        return decoding.throw(error)
    except StopIteration:
        return None


def _wait_a_little(waits: Sequence[Wait]) -> None:
    """Sleep until the first of some waits may be over."""
    import time

    while waits and not any(wait.is_over() for wait in waits):
        time.sleep(_POLL_S)
