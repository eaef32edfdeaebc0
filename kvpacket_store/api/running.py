"""Requests that are decoded together while others come and go."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpacket_store.api.admission import Admission
from kvpacket_store.api.answer import Piece
from kvpacket_store.api.arrivals import Arrivals, Give
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.pieces import AnswerPieces
from kvpacket_store.api.request import Request
from kvpacket_store.generate import Failed, Final, Finished, Provisional, Together

if TYPE_CHECKING:
    from kvpacket_store.api.engine import Engine

__all__ = ["Running"]

_LOG = logging.getLogger(__name__)
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A request that runs."""

    request: Request
    begun: Begun
    pieces: AnswerPieces


class Running:
    """Decodes requests in shared passes over the weights; they join and leave at any time.

    Requests come from any thread (`add`, `cancel`, `close`); one thread decodes. Answers are, token
    for token, those of `Engine.generate`.

    Parameters
    ----------
    engine : Engine
        Whose store and model.
    memory_bytes : int, optional
        Most that the K and V of running requests may take; others wait. See `Admission`.
    most : int, optional
        Most requests that run at once.
    most_begun_a_step : int, optional
        Most prompts that are prepared between two steps: those that run stand still meanwhile.

    Attributes
    ----------
    largest : int
        Most requests that ran at once.
    held_bytes : int
        Bytes of K and V of running requests, as of the last step.

    Examples
    --------
    ::

        running = Running(engine)
        running.add(new_request("Who proved it?", ["a"]), print)
        while running.num_unfinished:  # others may add meanwhile
            running.step()
    """

    def __init__(
        self,
        engine: Engine,
        memory_bytes: int | None = None,
        *,
        most: int | None = None,
        most_begun_a_step: int | None = None,
    ) -> None:
        self.largest = self.held_bytes = 0
        self._engine = engine
        self._admission = Admission(engine, memory_bytes)
        self._arrivals = Arrivals(self._admission.leave)
        self._most, self._most_begun = most, most_begun_a_step
        self._numbers = itertools.count()
        self._decoded: dict[int, _Decoded] = {}
        self._answered: list[_Decoded] = []
        self._together = self._new_together()

    @property
    def num_unfinished(self) -> int:
        """How many run or wait."""
        return self._arrivals.num_unfinished

    def num_unfinished_of(self, owner: str) -> int:
        """How many of an owner's run or wait."""
        return self._arrivals.num_unfinished_of(owner)

    @property
    def num_running(self) -> int:
        """How many have begun, and not ended."""
        return len(self._decoded)

    @property
    def num_waiting(self) -> int:
        """How many have not begun."""
        return max(self.num_unfinished - self.num_running, 0)

    def add(self, request: Request, give: Give) -> None:
        """Take a request in; ``give`` is told what comes of it, by the decoding thread mostly."""
        self._arrivals.add(request, give)

    def cancel(self, request: Request) -> None:
        """End a request: at once, by this thread, where it waits; within a step where it runs."""
        self._arrivals.cancel(request)

    def close(self) -> None:
        """Cancel what waits and what comes; what runs goes on to its end."""
        self._arrivals.close()

    def cancel_all(self) -> None:
        """End everything: what waits at once, what runs within a step."""
        self._arrivals.cancel_all()

    def step(self) -> None:
        """Let requests begin, give out what those that run have, and run one shared forward.

        What goes wrong ends the request that it belongs to; in the shared forward, all that run.
        """
        self._begin_some()
        for number, event in self._together.advance():
            if number in self._decoded:  # a stop string ends a request amid its tokens
                self._take(number, event)
        self._audit_answered()
        try:
            self._together.forward()
        except Exception as error:
            for number in list(self._decoded):
                self._end(number, error)
        self.held_bytes = sum(decoded.begun.held_bytes for decoded in self._decoded.values())

    def abandon(self) -> None:
        """Let the exact K and V that are on their way be: nobody steps any more."""
        for decoded in self._decoded.values():
            if decoded.begun.swap is not None:
                decoded.begun.swap.abandon()

    def _new_together(self) -> Together:
        return Together(self._engine.store.model.row_forward())

    def _begin_some(self) -> None:
        num_begun = 0
        while self._has_place(num_begun) and (request := self._arrivals.take()) is not None:
            if not self._begin(request):
                self._arrivals.put_back(request)
                break
            num_begun += 1
        if not self._decoded:  # who is next waits for a turn that an ended request still holds
            self._arrivals.wait_for_change(_POLL_S)

    def _has_place(self, num_begun: int) -> bool:
        if self._most is not None and len(self._decoded) >= self._most:
            return False
        return not self._decoded or self._most_begun is None or num_begun < self._most_begun

    def _begin(self, request: Request) -> bool:
        """Begin a request if it fits; say whether it is out of the queue."""
        try:
            begun = self._admission.begin(request, [d.begun for d in self._decoded.values()])
        except Exception as error:
            self._arrivals.end(request, error)
            return True
        if begun is None:
            return False
        try:
            self._join(request, begun)
        except Exception as error:
            if begun.swap is not None:
                begun.swap.abandon()
            self._arrivals.end(request, error)
        return True

    def _join(self, request: Request, begun: Begun) -> None:
        if not self._decoded:
            self._together = self._new_together()  # layers may be wrapped by now, or no more
        number = next(self._numbers)
        pieces = AnswerPieces(request, begun, self._engine.store.model.tokenizer)
        self._decoded[number] = _Decoded(request, begun, pieces)
        self._together.join(number, begun.answering, begun.decoding)
        self.largest = max(self.largest, len(self._decoded))

    def _take(self, number: int, event: Final | Provisional | Finished | Failed) -> None:
        """Take in what a request gave."""
        try:
            outcome = self._outcome(self._decoded[number], event)
        except Exception as error:
            outcome = error
        if outcome is not None:
            self._end(number, outcome)

    def _outcome(
        self, decoded: _Decoded, event: Final | Provisional | Finished | Failed
    ) -> Piece | Exception | None:
        """Hand on what a request gave; return what ends it, or None where it goes on."""
        if isinstance(event, Failed):
            return event.error
        if isinstance(event, Finished):
            return decoded.pieces.finish()
        if piece := decoded.pieces.push(event):
            self._arrivals.give(decoded.request, piece)
        return decoded.pieces.finish() if decoded.pieces.is_stopped else None

    def _end(self, number: int, outcome: Piece | Exception) -> None:
        decoded = self._decoded.pop(number)
        self._together.leave(number)
        if decoded.begun.swap is not None:
            decoded.begun.swap.abandon()  # not `drop`, which would wait for what is on its way
        if isinstance(outcome, Piece):
            self._answered.append(decoded)
        self._arrivals.end(decoded.request, outcome)

    def _audit_answered(self) -> None:
        """Audit what was given out, if it is its turn: nobody's answer is at stake any more."""
        while self._answered:
            decoded = self._answered.pop()
            try:
                self._engine.audit(decoded.begun)
            except Exception:
                _LOG.exception("an audit failed")
