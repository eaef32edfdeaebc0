"""Every error that leaves a route becomes ``application/problem+json``, or OpenAI's error object.

The latter under ``/v1``: clients of that surface read nothing else.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kvpacket_store.errors import KVPacketError

from .logs import log_fault
from .problems import Problem, problem_of

__all__ = [
    "ProblemResponse",
    "answer_errors_with_problems",
    "answer_of",
    "log_own_fault",
    "openai_error",
    "problem_response",
]

_OPENAI_PREFIX = "/v1/"

_MOST_ERRORS = 20
_MOST_FIELD_CHARS = 200


class ProblemResponse(JSONResponse):
    """A problem as a response."""

    media_type = "application/problem+json"

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.to_dict(), problem.status, {**(headers or {}), **problem.headers})


def problem_response(
    request: Request, problem: Problem, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return a problem in the form of the surface that was asked."""
    if not request.url.path.startswith(_OPENAI_PREFIX):
        return ProblemResponse(problem, headers)
    headers = {**(headers or {}), **problem.headers}
    return JSONResponse(openai_error(problem), problem.status, headers)


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return OpenAI's error object; ``code`` is the kind of problem."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    is_ours = problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    field = next((one["pointer"] for one in problem.members.get("errors", ())), None)
    return {
        "error": {
            "message": problem.detail,
            "type": kinds.get(
                problem.status, "server_error" if is_ours else "invalid_request_error"
            ),
            "param": field and field.removeprefix("#").removeprefix("/").replace("/", "."),
            "code": None if problem.type == "about:blank" else problem.name.replace("-", "_"),
        }
    }


def log_own_fault(error: BaseException) -> None:
    """Log what clients are not told: errors that are not theirs."""
    if problem_of(error).status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log_fault("a request failed", error)


async def answer_of(request: Request, error: Exception) -> Response:
    """Return the response to an error that a middleware has met, as if a route had raised it."""
    handlers = request.app.exception_handlers
    kind = next(ancestor for ancestor in type(error).__mro__ if ancestor in handlers)
    response: Response = await handlers[kind](request, error)
    return response


def answer_errors_with_problems(app: FastAPI) -> None:
    """Install the handlers."""
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_malformed)
    for kind in (KVPacketError, asyncio.QueueFull, Exception):
        app.add_exception_handler(kind, _answer_error)


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    log_own_fault(error)
    return problem_response(request, problem_of(error))


async def _answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer what the framework, or a route in the terms of HTTP, refuses."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == HTTPStatus.BAD_REQUEST:  # neither text nor JSON, or nested too deep
        fields = [{"pointer": "#", "detail": "it is no JSON text"}]
        return problem_response(request, _malformed(fields))
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(error.status_code, title, str(error.detail))
    return problem_response(request, problem, dict(error.headers or {}))


async def _answer_malformed(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    fields = [_field_error(one) for one in error.errors()[:_MOST_ERRORS]]
    return problem_response(request, _malformed(fields))


def _malformed(fields: list[dict[str, str]]) -> Problem:
    first = fields[0]
    return Problem(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        title="The request is malformed",
        detail=f"{first['pointer']}: {first['detail']}",
        type="urn:kvpacket-store:problem:malformed",
        members={"errors": fields},
    )


def _field_error(error: dict[str, Any]) -> dict[str, str]:
    """Name the field (a JSON pointer) and what is wrong; never what it held."""
    if error["type"] == "json_invalid":
        return {"pointer": "#", "detail": f"it is no JSON: {error['ctx']['error']}"}
    pointer = "#" + "".join(
        f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in error["loc"][1:]
    )
    return {
        "pointer": pointer[:_MOST_FIELD_CHARS],
        "detail": error["msg"].removeprefix("Value error, "),
    }
