"""Answers that are kept for a day, so that a request which is sent again is not done again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import Response
from starlette.exceptions import HTTPException

from kvpacket_store.api import DEFAULT_NAMESPACE
from kvpacket_store.errors import UsageError
from kvpacket_store.store import PacketStore

from .problems import BUSY_RETRY_AFTER_S

__all__ = ["Idempotency", "IdempotentRequest"]

_ANSWERS = "idempotent answers"
_KEPT_S = 24 * 3600
_MOST_KEY_CHARS = 255


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request that is to be done once.

    Parameters
    ----------
    owner : str
        Whose key it is: the same key of another is another.
    key : str
        As the client sent it.
    body : bytes
        The whole request, in one form.

    Raises
    ------
    UsageError
        The key is empty or too long.
    """

    owner: str
    key: str
    body: bytes

    def __post_init__(self) -> None:
        if not 1 <= len(self.key) <= _MOST_KEY_CHARS:
            raise UsageError(f"Idempotency-Key has 1 to {_MOST_KEY_CHARS} characters")

    @property
    def name(self) -> str:
        """What its answer is kept under; the key itself is not kept."""
        return _digest(json.dumps([self.owner, self.key]).encode())


class Idempotency:
    """Answers by key. Use it from one event loop.

    An answer is kept after what it tells of is done: a server that is killed between the two does
    it again, which files the same documents anew at the cost of a hash.

    Parameters
    ----------
    packets : PacketStore
        Where answers are kept.
    most : int
        How many; the oldest go first.
    """

    def __init__(self, packets: PacketStore, most: int) -> None:
        self._packets, self._most = packets, most
        self._running: set[str] = set()

    async def answer(
        self, request: IdempotentRequest, do: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the kept answer, or do what is asked; errors that `do` raises are not kept.

        Raises
        ------
        HTTPException
            409: it is being done, or the key was used for another body.
        """
        name = request.name
        if name in self._running:
            raise HTTPException(
                HTTPStatus.CONFLICT,
                "a request with this Idempotency-Key is being done; send it again in a moment",
                {"Retry-After": str(BUSY_RETRY_AFTER_S)},
            )
        self._running.add(name)
        try:
            digest = await asyncio.to_thread(_digest, request.body)
            kept = await asyncio.to_thread(self._find, name)
            if kept is not None:
                return _replayed(kept, digest)
            response = await do()
            await asyncio.to_thread(self._keep, name, _row(response, digest))
            return response
        finally:
            self._running.discard(name)

    def _find(self, name: str) -> dict[str, Any] | None:
        value = self._packets.get_values(DEFAULT_NAMESPACE, _ANSWERS, [name]).get(name)
        row: dict[str, Any] | None = None if value is None else json.loads(value)
        return None if row is None or _is_old(row) else row

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        """Keep an answer, and let go of those that are old or too many."""
        kept = self._packets.iter_values(DEFAULT_NAMESPACE, _ANSWERS)
        ages = sorted((json.loads(value)["at_s"], key) for key, value in kept)
        surplus = max(len(ages) + 1 - self._most, 0)
        gone = [key for n, (at_s, key) in enumerate(ages) if n < surplus or _is_old({"at_s": at_s})]
        self._packets.delete_values(DEFAULT_NAMESPACE, _ANSWERS, gone)
        value = json.dumps(row).encode()
        self._packets.put_values(DEFAULT_NAMESPACE, _ANSWERS, {name: value})


def _replayed(row: dict[str, Any], digest: str) -> Response:
    if row["digest"] != digest:
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "this Idempotency-Key was used for another request; take a new one",
        )
    headers = {**row["headers"], "Idempotent-Replayed": "true"}
    return Response(row["body"], row["status"], headers, "application/json")


def _row(response: Response, digest: str) -> dict[str, Any]:
    location = response.headers.get("Location")
    return {
        "at_s": time.time(),
        "digest": digest,
        "status": response.status_code,
        "headers": {} if location is None else {"Location": location},
        "body": bytes(response.body).decode(),
    }


def _is_old(row: dict[str, Any]) -> bool:
    return bool(time.time() - row["at_s"] > _KEPT_S)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
