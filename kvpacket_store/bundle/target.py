"""A file that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kvpacket_store.durable import sync
from kvpacket_store.errors import StoreFullError, UsageError

__all__ = ["new_file"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Give a temporary file beside ``path`` that becomes it at the end: synced, then renamed.

    Raises
    ------
    UsageError
        There is a file already, or none can be made there.
    StoreFullError
        The disk is full; nothing is left behind.
    """
    if not overwrite and path.exists():
        raise _is_there(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _move(temporary, path, overwrite)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)
    except OSError as error:
        raise _as_ours(error, path) from error


def _move(temporary: Path, path: Path, overwrite: bool) -> None:
    """Rename; where nothing may be overwritten, not even a file that came meanwhile."""
    if not overwrite:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise _is_there(path) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return
    temporary.replace(path)


def _is_there(path: Path) -> UsageError:
    return UsageError(f"{path} is there already; choose another path, or say to overwrite it")


def _as_ours(error: OSError, path: Path) -> Exception:
    if error.errno in _FULL:
        return StoreFullError(
            f"no room to write the bundle {path} ({error}); free disk space or choose another path"
        )
    return UsageError(f"the bundle {path} cannot be written ({error}); choose another path")
