"""No request body longer than the limit is read, nor waited for longer."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyLimit"]

_CLOSE = {"Connection": "close"}  # the rest of the body is not read


class BodyLimit:
    """ASGI middleware: reading more of a body raises 413, waiting longer for it 408.

    FastAPI's own ``max_body_size`` answers in plain text; this one leaves the answer to the
    handlers of the app.

    Parameters
    ----------
    limit_bytes : int
        Longest body, whatever its ``Content-Length`` says.
    timeout_s : float
        How long after its head the whole body is to be there.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._limit_bytes, self._timeout_s = limit_bytes, timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] == "http":
            announced = Headers(scope=scope).get("Content-Length", "")
            body = _Body(receive, self._limit_bytes, self._timeout_s, announced)
            receive = body.receive
        await self._app(scope, receive, send)


class _Body:
    """A body as it comes."""

    def __init__(
        self, receive: Receive, limit_bytes: int, timeout_s: float, announced: str
    ) -> None:
        self._receive = receive
        self._limit_bytes, self._timeout_s = limit_bytes, timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._num_bytes = 0
        self._is_whole = False
        self._announced_bytes = int(announced) if announced.isdecimal() else 0

    async def receive(self) -> Message:
        """Return the next message; once the body is whole, only the client's leaving is one."""
        if self._is_whole:
            return await self._receive()
        self._require_short(self._announced_bytes)
        message = await self._arrived()
        self._num_bytes += len(message.get("body", b""))
        self._require_short(self._num_bytes)
        self._is_whole = not message.get("more_body", False)
        return message

    async def _arrived(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"the body was not there after {self._timeout_s:g} s", _CLOSE
            ) from None

    def _require_short(self, num_bytes: int) -> None:
        if num_bytes > self._limit_bytes:
            raise HTTPException(
                413,
                f"the body is longer than {self._limit_bytes} bytes; split it over several "
                "requests",
                _CLOSE,
            )
