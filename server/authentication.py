"""Who asks is known before a route is looked for; with keys, all paths but three are closed."""

from __future__ import annotations

import base64
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .callers import ANYBODY, Caller, set_caller
from .keys import KeyRing
from .loopback import is_sent_to_loopback
from .problem_responses import answer_of
from .request_record import current_record

__all__ = ["OPEN_PATHS", "Authentication"]

_PAGE = "/ui"
OPEN_PATHS = frozenset({"/health", "/ready", "/version"})
"""What anybody may ask a server with keys."""


class Authentication:
    """ASGI middleware: says who asks, or answers 401.

    It stands before the routes, so that one which forgets to ask for a caller is closed as well.

    Parameters
    ----------
    keys : KeyRing, optional
        None: a server without keys, where everybody may do everything.
    local_names_only : bool
        Answer 421 where ``Host`` is no name of loopback.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing | None, *, local_names_only: bool) -> None:
        self._app, self._keys = app, keys
        self._local_names_only = local_names_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its caller."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_misdirected(scope):
            response = await answer_of(Request(scope), _misdirected())
            await response(scope, receive, send)
        elif self._keys is None:
            set_caller(scope, ANYBODY)
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._with_keys(self._keys, scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _is_misdirected(self, scope: Scope) -> bool:
        host = Headers(scope=scope).get("Host", "")
        return self._local_names_only and not is_sent_to_loopback(host)

    async def _with_keys(self, keys: KeyRing, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = (scope["method"], scope["path"]) == ("GET", _PAGE)
        caller = _caller_of(keys, Headers(scope=scope), takes_basic=is_page)
        if caller is not None:
            set_caller(scope, caller)
            if record := current_record():
                record.key_name = caller.name
        elif scope["path"] not in OPEN_PATHS:
            response = await answer_of(Request(scope), _unauthorized(is_page=is_page))
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _caller_of(keys: KeyRing, headers: Headers, *, takes_basic: bool) -> Caller | None:
    given = headers.getlist("Authorization")
    scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return keys.caller_of(key.strip(" ").encode("latin-1"))
    if scheme.lower() == "basic" and takes_basic:
        return keys.caller_of(_password_of(key.strip(" ")))
    return None


def _password_of(credentials: str) -> bytes:
    """Return the password of ``user:password`` in base64; none where it is not that."""
    try:
        _, _, password = base64.b64decode(credentials, validate=True).partition(b":")
    except ValueError:
        return b""
    return password


def _misdirected() -> HTTPException:
    return HTTPException(
        HTTPStatus.MISDIRECTED_REQUEST,
        "this server has no keys and answers to localhost and loopback addresses alone; for other "
        "names it takes keys: `kvps serve --api-keys FILE`",
    )


def _unauthorized(*, is_page: bool) -> HTTPException:
    """Browsers ask people for a password where they are told to: the key is one, for the page."""
    return HTTPException(
        HTTPStatus.UNAUTHORIZED,
        "this server takes keys: send `Authorization: Bearer KEY` with one of its own",
        {"WWW-Authenticate": 'Basic realm="kvps", charset="UTF-8"' if is_page else "Bearer"},
    )
