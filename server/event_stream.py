"""An answer as server-sent events, in a form that is handed in."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from fastapi.sse import format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kvpacket_store.api import Piece

from .connection import generate_while_connected
from .generations import Generations, MakeRequest
from .problem_responses import log_own_fault
from .problems import problem_of
from .work import Work

__all__ = ["EventForm", "NativeForm", "PieceStream", "event"]


class EventForm(Protocol):
    """How the pieces of one answer become events."""

    def piece(self, piece: Piece) -> bytes:
        """Return the events of a piece; the last piece has the answer."""
        ...

    def error(self, error: Exception) -> bytes:
        """Return the events that end a stream that cannot go on."""
        ...


class NativeForm:
    """``data: {"text": …}`` a piece, and the whole answer as the last ``data:``.

    Text that a draft proposes is an ``event: provisional``; final pieces say it again, or not. An
    error is an ``event: error`` with the problem.
    """

    def piece(self, piece: Piece) -> bytes:
        """See `EventForm`."""
        name = "provisional" if piece.provisional else None
        text = event({"text": piece.text}, name) if piece.text else b""
        return text if piece.answer is None else text + event(piece.answer.to_dict())

    def error(self, error: Exception) -> bytes:
        """See `EventForm`."""
        return event(problem_of(error).to_dict(), "error")


def event(data: dict[str, Any] | str, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    encoded: bytes = format_sse_event(data_str=text, event=name)
    return encoded


class PieceStream(Response):
    """Sends an answer piece by piece.

    What goes wrong before the first piece is raised and has a status of its own; later it is the
    last event. Unlike the framework's streaming responses, this one listens
    for the end of the connection from before the work starts, so it stops it between pieces too.
    """

    media_type = "text/event-stream"

    def __init__(
        self, generations: Generations, make_request: MakeRequest, form: EventForm
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._generations = generations
        self._make_request, self._form = make_request, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do the work and send it."""
        async with generate_while_connected(self._generations, self._make_request, receive) as work:
            first = await anext(work)
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await _send_body(send, self._form.piece(first))
            async with aclosing(self._rest(work)) as bodies:
                async for body in bodies:
                    await _send_body(send, body)
        await _send_body(send, b"", more=False)

    async def _rest(self, work: Work[Piece]) -> AsyncGenerator[bytes, None]:
        """Yield what follows the first piece; an error of the work is the last event."""
        try:
            async for piece in work:
                yield self._form.piece(piece)
        except Exception as error:
            log_own_fault(error)
            yield self._form.error(error)


async def _send_body(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
