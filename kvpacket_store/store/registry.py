"""One environment for each store and process.

LMDB's locks belong to (process, file): opened twice, a store would lose the locks of the first
opening when the second is closed. Stores are told apart by device and inode of ``use.lock``, which
stays open and is never replaced: two spellings of one path meet, and a store that was deleted and
made again does not meet its predecessor.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TypeAlias

from kvpacket_store.errors import StoreError
from kvpacket_store.store.database import DATA_FILE
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.locks import USE_LOCK_FILE

__all__ = ["acquire", "release"]

_Identity: TypeAlias = tuple[int, int]

_lock = threading.Lock()
_environments: dict[_Identity, Environment] = {}


def acquire(
    path: Path, map_bytes: int | None = None, *, read_only: bool | None = None
) -> Environment:
    """Return the environment of the store at ``path``, opened if it is not yet.

    Raises
    ------
    FileNotFoundError
        There is no ``data.mdb``.
    StoreError
        It cannot be opened; or only for writing, while this process reads it.
    """
    with _lock:
        environment = _environments.get(_identity(path))
        if environment is None:
            environment = Environment(path, map_bytes, read_only=read_only)
            _environments[_identity(path)] = environment  # there is a use.lock now
        elif environment.is_read_only and read_only is False:
            raise StoreError(
                f"store {path} is open for reading alone in this process; close that handle first"
            )
        environment.num_users += 1
        return environment


def _identity(path: Path) -> _Identity:
    try:
        status = (path / USE_LOCK_FILE).stat()
    except FileNotFoundError:  # a copy of the data alone, where nothing can be written
        status = (path / DATA_FILE).stat()
    return (status.st_dev, status.st_ino)


def release(environment: Environment) -> None:
    """Give an environment back; the last one to do so closes it."""
    with _lock:
        environment.num_users -= 1
        if environment.num_users:
            return
        for identity, known in list(_environments.items()):
            if known is environment:
                del _environments[identity]
        environment.close()


def _before_fork() -> None:
    _lock.acquire()
    for environment in _environments.values():
        environment.prepare_fork()


def _after_fork_in_parent() -> None:
    for environment in _environments.values():
        environment.after_fork_in_parent()
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 - the old one is held, by a process that is not this one
    _lock = threading.Lock()
    for environment in _environments.values():
        environment.after_fork_in_child()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
