"""One environment for each store and process.

LMDB's locks belong to (process, file): opened twice, a store would lose the locks of the first
opening when the second is closed. Files are told apart by device and inode, so that two spellings
of one path meet, and a store that was deleted and made again does not meet its predecessor.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TypeAlias

from kvpacket_store.store.environment import Environment

__all__ = ["acquire", "release"]

_Identity: TypeAlias = tuple[int, int]

_lock = threading.Lock()
_environments: dict[_Identity, Environment] = {}


def acquire(path: Path, map_bytes: int | None = None) -> Environment:
    """Return the environment of the store at ``path``, opened if it is not yet.

    Raises
    ------
    FileNotFoundError
        There is no ``data.mdb``.
    StoreError
        It cannot be opened.
    """
    status = (path / "data.mdb").stat()
    identity = (status.st_dev, status.st_ino)
    with _lock:
        environment = _environments.get(identity)
        if environment is None:
            environment = _environments[identity] = Environment(path, map_bytes)
        environment.num_users += 1
        return environment


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
