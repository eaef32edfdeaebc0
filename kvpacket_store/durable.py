"""On the disk, not only in its cache: a rename lasts once the folder is synced as well."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync"]


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk.

    Raises
    ------
    OSError
        They are not; whoever writes says what that means.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
