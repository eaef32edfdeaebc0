"""What the server knows of the request that it is at, wherever that is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpacket_store.api.answer import Usage

__all__ = ["NOBODY", "RequestRecord", "at", "current_record", "key_name"]

NOBODY = ""
"""The owner of what is asked without a key."""


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One HTTP request, for its line in the log. Nothing of what it asks is kept here.

    Parameters
    ----------
    request_id : str
        Its ``X-Request-Id``.
    key_name : str
        Whose key it came with; `NOBODY` without one.
    status : int, optional
        Of the response, once that began.
    is_lost : bool
        Whether the connection was found gone while the response was sent.
    usages : list of Usage
        Of the answers that were decoded for it.
    """

    request_id: str
    key_name: str = NOBODY
    status: int | None = None
    is_lost: bool = False
    usages: list[Usage] = field(default_factory=list)
    clock: float = field(default_factory=time.perf_counter)

    def elapsed_ms(self) -> float:
        """Return the time since it arrived."""
        return 1e3 * (time.perf_counter() - self.clock)


_RECORD: ContextVar[RequestRecord | None] = ContextVar("kvpacket_request_record", default=None)


def current_record() -> RequestRecord | None:
    """Return the request that this task or thread is at; None outside of requests."""
    return _RECORD.get()


@contextmanager
def at(record: RequestRecord) -> Iterator[None]:
    """Let what this task does in the block be about a request."""
    token = _RECORD.set(record)
    try:
        yield
    finally:
        _RECORD.reset(token)


def key_name() -> str:
    """Return whose key the request came with; `NOBODY` without one, or outside of requests."""
    record = current_record()
    return NOBODY if record is None else record.key_name
