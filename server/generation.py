"""One request to the engine, from its submission to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from kvpacket_store.api import Piece
from kvpacket_store.errors import CancelledError, KVPacketError, UsageError

from .limits import ServerLimits
from .refusals import RequestTimeoutError
from .request_record import current_record
from .work import Work

if TYPE_CHECKING:
    from kvpacket_store.api.request import Request

__all__ = ["Generation", "require_within_limits"]


class Generation:
    """A request, what it is answered with, and why it is ended where its client did not end it.

    Parameters
    ----------
    request : Request
        What the engine is asked.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.work: Work[Piece] = Work(request.cancel)
        self._record = current_record()
        self._text: list[str] = []
        self._why_ended: Callable[[], KVPacketError] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def limit_time(self, limit_s: float, end: Callable[[], None]) -> None:
        """Call ``end`` when the time is over, unless `forget` comes first."""

        def expire() -> None:
            self.end_because(self._timeout_of(limit_s))
            end()

        self._timer = asyncio.get_running_loop().call_later(limit_s, expire)

    def forget(self) -> None:
        """Limit the time no more: the client has heard all that it wants."""
        if self._timer is not None:
            self._timer.cancel()

    def end_because(self, why: Callable[[], KVPacketError]) -> None:
        """Say what a client that still listens is told when the request is cancelled."""
        self._why_ended = self._why_ended or why

    def give(self, piece: Piece) -> None:
        """Hand on a piece."""
        if not piece.provisional:
            self._text.append(piece.text)
        if piece.answer is not None and self._record is not None:
            self._record.usages.append(piece.answer.usage)
        self.work.put(piece)
        if piece.answer is not None:
            self.work.end()

    def told(self, error: Exception) -> Exception:
        """Return what the client is told of what ended the request."""
        if isinstance(error, CancelledError) and self._why_ended is not None:
            return self._why_ended()
        return error

    def _timeout_of(self, limit_s: float) -> Callable[[], KVPacketError]:
        return lambda: RequestTimeoutError(limit_s, "".join(self._text), self.request.timings)


def require_within_limits(request: Request, limits: ServerLimits) -> None:
    """Refuse what would keep the others waiting for too long.

    Raises
    ------
    UsageError
        The answer may have too many tokens, or the question is too long.
    """
    if request.options.max_new_tokens > limits.max_new_tokens:
        raise UsageError(
            f"max_new_tokens is {request.options.max_new_tokens}; this server gives at most "
            f"{limits.max_new_tokens} an answer"
        )
    query = request.query
    said = (query.question, query.system_prompt or "", *chain.from_iterable(query.history))
    said_bytes = sum(len(text.encode()) for text in said)
    if said_bytes > limits.question_bytes:
        raise UsageError(
            f"the question and what was said before have {said_bytes} bytes; this server takes at "
            f"most {limits.question_bytes}: ingest long texts, and ask about them"
        )
