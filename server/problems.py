"""Errors → problem details (RFC 9457), in one table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store import errors

from .refusals import RequestTimeoutError, ShuttingDownError

__all__ = ["BUSY_RETRY_AFTER_S", "Problem", "problem_names", "problem_of"]

BUSY_RETRY_AFTER_S = 2
_LOADING_RETRY_AFTER_S = 5
_RESTART_RETRY_AFTER_S = 10
_TYPES = "urn:kvpacket-store:problem:"
_INTERNAL = "something went wrong inside; the server's log has more"
_DAMAGED = "stored data is damaged: `kvps doctor` names the documents; ingest them again"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem as clients see it.

    Parameters
    ----------
    status : int
        Of the response.
    title : str
        The same for every problem of a type.
    detail : str
        What happened this time, and what to do.
    type : str
        A URI that names the kind of problem; ``about:blank`` where the status says it all.
    retry_after_s : int, optional
        When trying again makes sense.
    members : mapping
        What this kind of problem has beyond the standard's fields.
    """

    status: int
    title: str
    detail: str
    type: str = "about:blank"
    retry_after_s: int | None = None
    members: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON."""
        return {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }

    @property
    def name(self) -> str:
        """The last word of a type of ours: one of `problem_names`."""
        return self.type.removeprefix(_TYPES)

    @property
    def headers(self) -> dict[str, str]:
        """What the response says beside its body."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one class of errors is answered. ``detail`` replaces a message that tells too much."""

    status: int
    name: str
    title: str
    retry_after_s: int | None = None
    detail: str | None = None


# An error is answered as the nearest of its ancestors that is named here.
_KINDS: dict[type[BaseException], _Kind] = {
    errors.NotFoundError: _Kind(404, "not-found", "Not found"),
    errors.UsageError: _Kind(422, "usage", "The request cannot be done"),
    errors.ContextOverflowError: _Kind(422, "context-overflow", "The prompt is too long"),
    errors.DocumentError: _Kind(422, "document", "A document cannot be used"),
    errors.CancelledError: _Kind(499, "cancelled", "The client closed the connection"),
    errors.ModelError: _Kind(503, "model", "The model cannot be used", _LOADING_RETRY_AFTER_S),
    errors.StoreLockedError: _Kind(503, "store-locked", "The store is locked", BUSY_RETRY_AFTER_S),
    asyncio.QueueFull: _Kind(429, "busy", "The server is busy", BUSY_RETRY_AFTER_S),
    ShuttingDownError: _Kind(
        503, "shutting-down", "The server is shutting down", _RESTART_RETRY_AFTER_S
    ),
    RequestTimeoutError: _Kind(504, "timeout", "The request took too long"),
    errors.StoreFullError: _Kind(507, "store-full", "The store is full"),
    errors.CodecError: _Kind(500, "damaged", "Stored data is damaged", detail=_DAMAGED),
    errors.StoreCorruptError: _Kind(500, "damaged", "Stored data is damaged", detail=_DAMAGED),
    BaseException: _Kind(500, "internal", "Internal error", detail=_INTERNAL),
}


def problem_of(error: BaseException) -> Problem:
    """Return how an error is told to clients."""
    kind = next(_KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in _KINDS)
    return Problem(
        status=kind.status,
        title=kind.title,
        detail=str(error) if kind.detail is None else kind.detail,
        type=f"{_TYPES}{kind.name}",
        retry_after_s=kind.retry_after_s,
        members=error.members if isinstance(error, RequestTimeoutError) else {},
    )


def problem_names() -> list[str]:
    """Return the names of all kinds of problems that errors are."""
    return sorted({kind.name for kind in _KINDS.values()})
