"""Who has a store open: all that share it, one that compacts it, or readers that cannot lock.

Two locks of the system (``flock``), on a file and on the folder itself:

============ ==================================== ================================================
lock         held shared by                       taken alone by
============ ==================================== ================================================
``use.lock`` every process that can lock          a compaction; readers without locks, for a moment
the folder   readers that cannot lock             the others, for a moment, to see that it is free
============ ==================================== ================================================

A reader that cannot write ``lock.mdb`` is unknown to the writers, who would use its pages again
under its eyes. So the two kinds exclude each other: each takes its own lock first and looks at the
other's then; of two that come at once at least one is refused.

``flock`` belongs to the open file: a forked child shares it with its parent, and only closes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from kvpacket_store.errors import StoreLockedError

__all__ = ["USE_LOCK_FILE", "FolderLocks"]

USE_LOCK_FILE = "use.lock"

_PATIENCE_S = 1.0  # others take a lock alone for a moment, to see whether it is free
_PAUSE_S = 0.01


class FolderLocks:
    """The locks that this process holds on a store's folder.

    Parameters
    ----------
    path : Path
        The folder.
    is_lockless : bool
        LMDB's own ``lock.mdb`` cannot be used here.
    """

    def __init__(self, path: Path, *, is_lockless: bool) -> None:
        self._path = path
        self._is_lockless = is_lockless
        self._held: int | None = None

    def hold(self) -> None:
        """Take part; where that is so already, nothing happens.

        Raises
        ------
        StoreLockedError
            Someone is there that cannot be there at the same time.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while self._held is None:
            obstacle = self._try_lockless() if self._is_lockless else self._try_locking()
            if obstacle is None:
                return
            if time.monotonic() > deadline_s:
                raise StoreLockedError(f"store {self._path}: {obstacle}")
            time.sleep(_PAUSE_S)

    def hold_alone(self) -> None:
        """Hold ``use.lock`` without any other process; LMDB must be closed.

        Raises
        ------
        StoreLockedError
            Another process has the store open. Nothing is held then.
        """
        self.release()  # going from shared to alone would lose the one where it misses the other
        descriptor = self._open_use_lock()
        deadline_s = time.monotonic() + _PATIENCE_S
        while not _take(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline_s:
                os.close(descriptor)
                raise StoreLockedError(
                    f"store {self._path}: another process has it open, so its file cannot be "
                    "replaced; close that one (a server, an ingest), then compact again"
                )
            time.sleep(_PAUSE_S)
        self._held = descriptor

    def release(self) -> None:
        """Let go of what is held."""
        descriptor, self._held = self._held, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was just forked has it open too
            os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: close the parent's lock and leave it locked."""
        descriptor, self._held = self._held, None
        if descriptor is not None:
            os.close(descriptor)

    def _try_locking(self) -> str | None:
        """Hold ``use.lock`` beside others; return what is in the way."""
        descriptor = self._open_use_lock()
        if not _take(descriptor, fcntl.LOCK_SH):
            os.close(descriptor)
            return "it is being compacted; try again when that is done"
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        is_free = _take(folder, fcntl.LOCK_EX)
        os.close(folder)
        if is_free:
            self._held = descriptor
            return None
        os.close(descriptor)
        return (
            "a process that may not write to lock.mdb reads it without locks; close that one, or "
            "let its user write to the folder"
        )

    def _try_lockless(self) -> str | None:
        """Hold the folder beside other readers; return what is in the way."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        if _take(folder, fcntl.LOCK_SH) and self._nobody_locks():
            self._held = folder
            return None
        os.close(folder)
        return (
            "another process has it open, and this one, which may not write to lock.mdb, cannot "
            "read beside it; close that one, or give this user write permission to the folder"
        )

    def _nobody_locks(self) -> bool:
        try:
            descriptor = os.open(self._path / USE_LOCK_FILE, os.O_RDONLY)
        except FileNotFoundError:  # whoever writes makes it first
            return True
        is_free = _take(descriptor, fcntl.LOCK_EX)
        os.close(descriptor)
        return is_free

    def _open_use_lock(self) -> int:
        path = self._path / USE_LOCK_FILE
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            return os.open(path, os.O_RDONLY)


def _take(descriptor: int, kind: int) -> bool:
    """Lock an open file without waiting; say whether that went well."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
