"""Who runs the forwards of decodings: one alone, or many in one pass over the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from kvpacket_store.errors import SwapFailedError
from kvpacket_store.generate.answering import Answering, Asked, Decoding, Final, Provisional, Wait
from kvpacket_store.models import RowWork

__all__ = ["Event", "Failed", "Finished", "Run", "Together", "decode_alone"]

Run: TypeAlias = Callable[[Sequence[RowWork]], list[torch.Tensor]]
"""As ``Model.row_forward()`` returns it."""

_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Finished:
    """A request has given all of its tokens."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request ended with an error, of any kind; others go on."""

    error: Exception


Event: TypeAlias = tuple[int, Final | Provisional | Finished | Failed]
"""Which request, and what it gave."""


def decode_alone(decoding: Decoding, run: Run) -> Iterator[Final | Provisional]:
    """Run one request to its end. Errors of the request are raised."""
    event = next(decoding, None)
    while event is not None:
        answer: torch.Tensor | None = None
        if isinstance(event, RowWork):
            try:
                answer = (event.run or run)((event,))[0]
            except SwapFailedError as error:
                event = _thrown(decoding, error)
                continue
        elif isinstance(event, Wait):
            while not event.is_over():
                time.sleep(_POLL_S)
        else:
            yield event
        event = _next(decoding, answer)


class Together:
    """Runs many requests; their drafts and verifications share forwards, a model's each.

    A request that waits for its exact K and V holds up none; one that ends or fails leaves. Others
    may join at any time.

    Parameters
    ----------
    run : callable
        See `Run`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._decodings: dict[int, tuple[Answering, Decoding]] = {}
        self._asked: dict[int, RowWork | Wait | None] = {}
        self._answers: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def join(self, index: int, answering: Answering, decoding: Decoding) -> None:
        """Take a request and its decoding in, under a number of the caller's."""
        self._decodings[index] = answering, decoding
        self._asked[index] = None

    def leave(self, index: int) -> None:
        """Let a request go before its end; nothing happens where it has gone."""
        self._asked.pop(index, None)
        self._answers.pop(index, None)
        if (left := self._decodings.pop(index, None)) is not None:
            left[1].close()

    def step(self) -> list[Event]:
        """Run one shared forward a model; return what requests gave: their numbers, and events."""
        events = self.advance()
        self.forward()
        return events

    def advance(self) -> list[Event]:
        """Go on with each request until it asks for a forward, or waits; return what they gave."""
        events: list[Event] = []
        for index in list(self._asked):
            try:
                if self._may_go_on(index):
                    self._advance(index, events)
            except Exception as error:  # of this request, and no other's
                events.append((index, Failed(error)))
                self.leave(index)
        return events

    def _may_go_on(self, index: int) -> bool:
        """Whether a request has what it asked for."""
        asked = self._asked[index]
        if isinstance(asked, Wait):
            return asked.is_over()
        return asked is None or index in self._answers

    def forward(self) -> None:
        """Run what was asked for; where all wait for K and V, wait a moment."""
        shared: dict[Run, dict[int, RowWork]] = {}
        for index, asked in self._asked.items():
            if isinstance(asked, RowWork):
                shared.setdefault(asked.run or self._run, {})[index] = asked
        for run, works in shared.items():
            self._answers.update(zip(works, run(list(works.values())), strict=True))
        if self._asked and not shared:
            time.sleep(_POLL_S)

    def _advance(self, index: int, events: list[Event]) -> None:
        """Go on with one request until it asks for something; write down what."""
        answering, decoding = self._decodings[index]
        answering.company = len(self)
        asked = _next(decoding, self._answers.pop(index, None))
        while asked is not None and not isinstance(asked, RowWork | Wait):
            events.append((index, asked))
            asked = _next(decoding, None)
        if asked is None:
            events.append((index, Finished()))
            self.leave(index)
        else:
            self._asked[index] = asked


def _next(decoding: Decoding, answer: torch.Tensor | None) -> Asked | None:
    try:
        # a fresh coroutine is sent None, and so is one that was given no logits
        return decoding.send(answer)  # type: ignore[arg-type]
    except StopIteration:
        return None


def _thrown(decoding: Decoding, error: SwapFailedError) -> Asked | None:
    """Let a decoding hear that its forward failed; it asks again, or raises."""
    try:
        return decoding.throw(error)
    except StopIteration:
        return None
