"""An answer as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi.sse import format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kvpacket_store.api import Piece

from .connection import generate_while_connected
from .generations import Generations, MakeRequest
from .problem_responses import log_own_fault
from .problems import problem_of
from .work import Work

__all__ = ["PieceStream"]


class PieceStream(Response):
    """Sends ``data: {"text": …}`` a piece, and the whole answer as the last ``data:``.

    Text that a draft proposes is an ``event: provisional``; final pieces say it again, or not.
    What goes wrong before the first piece is raised and has a status of its own; later it is an
    ``event: error`` with the problem. Unlike the framework's streaming responses, this one listens
    for the end of the connection from before the work starts, so it stops it between pieces too.
    """

    media_type = "text/event-stream"

    def __init__(self, generations: Generations, make_request: MakeRequest) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._generations = generations
        self._make_request = make_request

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
            await _send_body(send, _events(first))
            async with aclosing(_rest(work)) as bodies:
                async for body in bodies:
                    await _send_body(send, body)
        await _send_body(send, b"", more=False)


async def _rest(work: Work[Piece]) -> AsyncGenerator[bytes, None]:
    """Yield what follows the first piece; an error of the work is the last event."""
    try:
        async for piece in work:
            yield _events(piece)
    except Exception as error:
        log_own_fault(error)
        yield _event(problem_of(error).to_dict(), "error")


async def _send_body(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _events(piece: Piece) -> bytes:
    name = "provisional" if piece.provisional else None
    text = _event({"text": piece.text}, name) if piece.text else b""
    return text if piece.answer is None else text + _event(piece.answer.to_dict())


def _event(data: dict[str, Any], name: str | None = None) -> bytes:
    return format_sse_event(data_str=json.dumps(data, ensure_ascii=False), event=name)
