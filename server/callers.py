"""Who asks, and whose documents that is about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.types import Scope

from kvpacket_store.api import DEFAULT_NAMESPACE
from kvpacket_store.errors import UsageError

__all__ = ["ANYBODY", "Admin", "Caller", "Reader", "Role", "Writer", "set_caller"]


class Role(IntEnum):
    """What a caller may do; each includes those before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request.

    Parameters
    ----------
    name : str
        Of the key; never the key.
    role : Role
        What it may do.
    namespace : str, optional
        Whose documents it sees. None: a server without keys, where each request names one.
    """

    name: str
    role: Role
    namespace: str | None

    def namespace_for(self, asked: str | None) -> str:
        """Return the namespace of a request that names one, or none.

        Raises
        ------
        UsageError
            Another one than the key's is named.
        """
        if self.namespace is None:
            return DEFAULT_NAMESPACE if asked is None else asked
        if asked not in (None, self.namespace):
            raise UsageError("the namespace comes from the key; leave the field out")
        return self.namespace


ANYBODY = Caller("anybody", Role.ADMIN, None)
"""Whoever asks a server without keys."""


def set_caller(scope: Scope, caller: Caller) -> None:
    """Say who sent a request."""
    scope.setdefault("state", {})["caller"] = caller


def _caller_with(request: Request, role: Role) -> Caller:
    """Return who asks; one whose role is too small learns what it takes."""
    caller: Caller = request.state.caller
    if caller.role < role:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"the key has the role {caller.role.name.lower()}; this takes {role.name.lower()}",
        )
    return caller


async def _reader(request: Request) -> Caller:
    return _caller_with(request, Role.READ)


async def _writer(request: Request) -> Caller:
    return _caller_with(request, Role.WRITE)


async def _admin(request: Request) -> Caller:
    return _caller_with(request, Role.ADMIN)


Reader = Annotated[Caller, Depends(_reader)]
Writer = Annotated[Caller, Depends(_writer)]
Admin = Annotated[Caller, Depends(_admin)]
