"""Every error that leaves a route becomes ``application/problem+json``."""

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

__all__ = ["ProblemResponse", "answer_errors_with_problems", "answer_of", "log_own_fault"]

_MOST_ERRORS = 20
_MOST_FIELD_CHARS = 200


class ProblemResponse(JSONResponse):
    """A problem as a response."""

    media_type = "application/problem+json"

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.to_dict(), problem.status, {**(headers or {}), **problem.headers})


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


async def _answer_error(_request: Request, error: Exception) -> ProblemResponse:
    log_own_fault(error)
    return ProblemResponse(problem_of(error))


async def _answer_http_error(_request: Request, error: Exception) -> ProblemResponse:
    """Answer what the framework, or a route in the terms of HTTP, refuses."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == HTTPStatus.BAD_REQUEST:  # neither text nor JSON, or nested too deep
        return ProblemResponse(_malformed([{"pointer": "#", "detail": "it is no JSON text"}]))
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(error.status_code, title, str(error.detail))
    return ProblemResponse(problem, dict(error.headers or {}))


async def _answer_malformed(_request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    return ProblemResponse(_malformed([_field_error(one) for one in error.errors()[:_MOST_ERRORS]]))


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
