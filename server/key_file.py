"""The file of API keys: ``name role namespace sha256-of-key``, a line a key."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvpacket_store.durable import written_whole
from kvpacket_store.errors import UsageError

from .callers import Caller, Role
from .keys import Key, KeyRing, digest_of, new_key

__all__ = ["add_key", "read_keys", "warn_of_other_readers"]

_log = logging.getLogger("kvpacket_store.server")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_NAMESPACE_CHARS = 200
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_keys(path: str | Path) -> KeyRing:
    """Read all keys. Blank lines and those that begin with ``#`` are comments.

    Raises
    ------
    UsageError
        The file cannot be read, has no key, or a line is none; the message has its number.
    """
    keys = _parsed(Path(path), _text_of(Path(path)))
    if not keys:
        raise UsageError(f"{path} has no key; `kvps serve --api-keys {path} --new-key` makes one")
    return KeyRing(keys)


def add_key(path: str | Path, name: str, role: str, namespace: str) -> str:
    """Make a key, append its line, and return it: it can never be read again.

    The file is made where there is none, for its owner's eyes only. Whatever goes wrong, it is as
    it was.

    Raises
    ------
    UsageError
        A field is none, the name is taken, or the file cannot be read or written.
    """
    path, key = Path(path).resolve(), new_key()
    line = f"{name} {role} {namespace} {digest_of(key.encode()).hex()}\n"
    fields = (name, role, namespace)
    if any(field.split() != [field] for field in fields):
        raise UsageError("a key has a name, a role and a namespace, without spaces")
    if not _parsed(Path("--new-key"), line):
        raise UsageError("a name does not begin with `#`: its line would be a comment")
    try:
        with _locked(path.parent):
            _append(path, line)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
    return key


def warn_of_other_readers(path: str | Path) -> None:
    """Log a warning where others than its owner may read or write the file."""
    mode = Path(path).stat().st_mode
    if mode & _OTHERS:
        _log.warning(
            "other users have access to the key file (mode %o); `chmod 600` it", mode & 0o777
        )


def _append(path: Path, line: str) -> None:
    before = _text_of(path) if path.exists() else ""
    text = before + ("" if before.endswith("\n") or not before else "\n") + line
    _parsed(path, text)
    mode = stat.S_IMODE(path.stat().st_mode) if before else 0o600
    with written_whole(path) as scratch:
        scratch.touch(mode=0o600)
        scratch.write_text(text, encoding="utf-8")
        scratch.chmod(mode)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let nobody else append meanwhile; the file itself cannot be locked, for it is replaced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key file {path} cannot be read: {error}") from error


def _parsed(path: Path, text: str) -> list[Key]:
    keys: list[Key] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key = _key_of(line.split())
            _require_new(key, keys)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        keys.append(key)
    return keys


def _key_of(fields: list[str]) -> Key:
    """Make a key of a line; messages never quote what may be a key written there by mistake."""
    if len(fields) != 4:
        raise ValueError(
            f"it has {len(fields)} fields; a line is `name role namespace sha256-of-key`"
        )
    name, role, namespace, digest = fields
    if not _NAME.fullmatch(name):
        raise ValueError("the name is letters, digits, `.`, `_` and `-`, at most 64")
    if role.upper() not in Role.__members__ or role != role.lower():
        raise ValueError("the role is read, write or admin")
    if len(namespace) > _MOST_NAMESPACE_CHARS:
        raise ValueError(f"the namespace has more than {_MOST_NAMESPACE_CHARS} characters")
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the last field is the SHA-256 of a key: 64 hexadecimal digits")
    return Key(Caller(name, Role[role.upper()], namespace), bytes.fromhex(digest))


def _require_new(key: Key, before: list[Key]) -> None:
    if any(key.caller.name == other.caller.name for other in before):
        raise ValueError(f"the name {key.caller.name!r} is taken by an earlier line")
    if any(key.digest == other.digest for other in before):
        raise ValueError("the key is that of an earlier line")
