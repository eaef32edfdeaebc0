"""No request body longer than the limit is read."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyLimit"]


class BodyLimit:
    """ASGI middleware: reading more of a body raises 413.

    FastAPI's own ``max_body_size`` answers in plain text; this one leaves the answer to the
    handlers of the app.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body_bytes = 0

        async def counted() -> Message:
            nonlocal body_bytes
            message = await receive()
            body_bytes += len(message.get("body", b""))
            if body_bytes > self._limit_bytes:
                raise HTTPException(
                    413,
                    f"the body is longer than {self._limit_bytes} bytes; split it over several "
                    "requests",
                )
            return message

        await self._app(scope, counted, send)
