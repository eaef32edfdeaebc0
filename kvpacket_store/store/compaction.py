"""Writing ``data.mdb`` anew without the pages that are free, beside the folder, then in its place.

The copy is made in a folder of its own next to the store's, so that the store never takes more than
its cap, and comes in by one rename: whenever the process ends, the old file or the new one is
there, whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from kvpacket_store.store.database import DATA_FILE
from kvpacket_store.store.environment import Environment

__all__ = ["compact_file", "delete_leftovers"]


def compact_file(environment: Environment) -> None:
    """Compact; no other process may have the store open, and this one waits.

    Raises
    ------
    StoreLockedError
        Another process has it open.
    StoreFullError
        The disk has no room for the copy. Nothing has changed.
    StoreError
        Beside or in the folder nothing may be written.
    """
    folder = environment.path
    with environment.alone() as handle:
        delete_leftovers(folder)
        nursery = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
        try:
            handle.copy(os.fspath(nursery), compact=True)
            copied = nursery / DATA_FILE
            _adopt_owner(copied, folder / DATA_FILE)
            _sync(copied)
            environment.close_file()
            copied.rename(folder / DATA_FILE)
            _sync(folder)
        finally:
            shutil.rmtree(nursery, ignore_errors=True)


def delete_leftovers(folder: Path) -> int:
    """Delete what compactions that were killed have left; none may be running. Return how many."""
    found = [path for path in folder.parent.iterdir() if path.name.startswith(_prefix(folder))]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return len(found)


def _prefix(folder: Path) -> str:
    return f".{folder.name}.compact."


def _adopt_owner(copied: Path, original: Path) -> None:
    """Let the same users at it, whoever compacts."""
    shutil.copymode(original, copied)
    before, after = original.stat(), copied.stat()
    if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
        os.chown(copied, before.st_uid, before.st_gid)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
