"""Every request has an id, a line in the log, and an answer."""

from __future__ import annotations

import logging
import re
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .logs import log_fault
from .problem_responses import answer_of
from .request_record import RequestRecord, at

__all__ = ["RequestLog"]

_log = logging.getLogger("kvpacket_store.server.requests")
_HEADER = "X-Request-Id"
_TAKEN = re.compile(r"[A-Za-z0-9._~:-]{1,64}")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class RequestLog:
    """ASGI middleware, the outermost: ids, one line a request, and no exception leaves it.

    A client's ``X-Request-Id`` is taken where it is short and plain; else one is made. The line has
    the route as it is declared, never the path: a path has ids in it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(_request_id(scope))

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message)[_HEADER] = record.request_id
            try:
                await send(message)
            except OSError:
                record.is_lost = True
                raise

        with at(record):
            try:
                await self._answered(scope, receive, stamped, record)
            finally:
                _log.info("request", extra={"fields": _line(scope, record)})

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        """Answer what nobody expected here, so that no server logs it with all that it quotes."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if record.status is None:
                response = await answer_of(Request(scope), error)
                await response(scope, receive, send)
            elif not record.is_lost:
                log_fault("a response broke off", error)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(_HEADER, "")
    return given if _TAKEN.fullmatch(given) else uuid.uuid4().hex


def _line(scope: Scope, record: RequestRecord) -> dict[str, Any]:
    return {
        "method": scope["method"] if scope["method"] in _METHODS else "other",
        "route": getattr(scope.get("route"), "path", None),
        "status": record.status,
        "ms": round(record.elapsed_ms(), 1),
        "key": record.key_name or None,
        "prompt_tokens": sum(usage.prompt_tokens for usage in record.usages),
        "cached_tokens": sum(usage.cached_tokens for usage in record.usages),
        "completion_tokens": sum(usage.completion_tokens for usage in record.usages),
    }
