"""What LMDB says, in the words of this package: what happened, whose turn it is, what to do."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import lmdb

from kvpacket_store.errors import (
    NotFoundError,
    ReadOnlyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    UnsupportedFormatError,
)

__all__ = ["as_store_error", "disk_is_full", "read_only_error"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_BUSY = {errno.EAGAIN, errno.ENOLCK, errno.EBUSY}
_ALMOST_NOTHING_BYTES = 4 << 20

_DAMAGED = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.BadDbiError,
    lmdb.IncompatibleError,
)


def as_store_error(error: Exception, path: Path) -> Exception:
    """Translate what LMDB or the operating system raised.

    Parameters
    ----------
    error : lmdb.Error or OSError
        As caught.
    path : Path
        The store's folder.

    Returns
    -------
    KVPacketError
        To be raised ``from error``.
    """
    code = int(getattr(error, "errno", None) or getattr(error, "code", None) or 0)
    if disk_is_full(error, code, path):
        return StoreFullError(
            f"store {path}: no room to write ({error}); nothing that was acknowledged is lost. "
            "Free disk space or raise the file size limit, then try again"
        )
    if isinstance(error, lmdb.VersionMismatchError):
        return UnsupportedFormatError(
            f"store {path}: its data.mdb was written by another LMDB engine ({error}); "
            "open it with the version that made it"
        )
    if isinstance(error, lmdb.NotFoundError):  # a table, at opening
        return NotFoundError(f"{path} holds a database that is no store; choose another path")
    if isinstance(error, _DAMAGED):
        return StoreCorruptError(
            f"store {path}: the structure of data.mdb does not hold ({error}); "
            "restore it from a copy, or ingest again into a new store"
        )
    return _access_error(error, code, path)


def _access_error(error: Exception, code: int, path: Path) -> StoreError:
    if isinstance(error, lmdb.ReadersFullError):
        return StoreLockedError(
            f"store {path}: every reader slot is taken; close some of the processes that read it"
        )
    if isinstance(error, lmdb.LockError) or code in _BUSY:
        return StoreLockedError(
            f"store {path}: cannot lock it ({error}); wait for the process that holds it, and "
            "keep stores on a local disk, not on a network share"
        )
    if code in _FORBIDDEN or isinstance(error, lmdb.ReadonlyError):
        return StoreError(
            f"store {path}: cannot get at it ({error}). Give this user permission to read the "
            "folder and its files (write permission too, for whoever changes it), or copy the store"
        )
    if isinstance(error, lmdb.TxnFullError):
        return StoreError(f"store {path}: too much in one commit; pass fewer documents at once")
    if isinstance(error, lmdb.MemoryError) or code == errno.ENOMEM:
        return StoreError(
            f"store {path}: no address space left to map it ({error}); raise `ulimit -v`"
        )
    return StoreError(f"store {path}: {error}; run `kvps doctor`, and look at the disk's health")


def disk_is_full(error: Exception, code: int, path: Path) -> bool:
    """Say whether a failed write means that the disk, or what we may use of it, is used up.

    LMDB reports a write that came out short as a plain I/O error, so the disk is asked as well.
    """
    if code in _FULL or isinstance(error, lmdb.DiskError):
        return True
    if code != errno.EIO:
        return False
    try:
        room = os.statvfs(path)
        data_bytes = (path / "data.mdb").stat().st_size
    except OSError:
        return False
    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    near_limit = limit_bytes not in (-1, resource.RLIM_INFINITY) and (
        data_bytes + _ALMOST_NOTHING_BYTES > limit_bytes
    )
    return near_limit or room.f_bavail * room.f_frsize < _ALMOST_NOTHING_BYTES


def read_only_error(path: Path) -> ReadOnlyError:
    """Return what is raised where a store that is open for reading is to be changed."""
    return ReadOnlyError(
        f"store {path} is open for reading alone; open it without read_only, as a user with write "
        "permission to the folder and its files, or copy the store to where that is so"
    )
