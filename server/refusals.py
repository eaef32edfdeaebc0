"""Errors that only a server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvpacket_store.errors import KVPacketError

if TYPE_CHECKING:
    from kvpacket_store.api.answer import Timings

__all__ = ["RequestTimeoutError", "ShuttingDownError"]


class ShuttingDownError(KVPacketError):
    """The server ends; another, or the same a little later, will answer."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down; try again in a few seconds")


class RequestTimeoutError(KVPacketError):
    """An answer took longer than the server's limit, and was stopped.

    Parameters
    ----------
    limit_s : float
        The limit.
    text : str
        The answer so far.
    timings_ms : Timings
        Where the time went.
    """

    def __init__(self, limit_s: float, text: str, timings_ms: Timings) -> None:
        super().__init__(
            f"the answer was stopped after {limit_s:g} s, at {len(text)} characters; ask for fewer "
            "tokens or documents, or try again when the server has less to do"
        )
        self.members: Mapping[str, Any] = {
            "done": {"text": text, "timings_ms": timings_ms.to_dict()}
        }
