"""API keys: who may do what with whose documents."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from .callers import Caller

__all__ = ["Key", "KeyRing", "digest_of", "new_key"]

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a server takes.

    Parameters
    ----------
    caller : Caller
        Whose it is.
    digest : bytes
        SHA-256 of the key. Keys are random and long, so that a slow hash would add nothing.
    """

    caller: Caller
    digest: bytes


class KeyRing:
    """All keys of a server.

    Examples
    --------
    >>> from .callers import Role
    >>> ring = KeyRing([Key(Caller("ann", Role.READ, "default"), digest_of(b"open sesame"))])
    >>> ring.caller_of(b"open sesame").name
    'ann'
    >>> ring.caller_of(b"open barley") is None
    True
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = tuple(keys)

    def caller_of(self, key: bytes) -> Caller | None:
        """Return who has this key; it takes as long whoever that is, and where nobody has it."""
        digest, found = digest_of(key), None
        for known in self._keys:
            if hmac.compare_digest(known.digest, digest):
                found = known.caller
        return found


def digest_of(key: bytes) -> bytes:
    """Return what is kept of a key."""
    return hashlib.sha256(key).digest()


def new_key() -> str:
    """Return a key that nobody can guess: 256 random bits, in ASCII."""
    return f"kvps_{secrets.token_urlsafe(_KEY_BYTES)}"
