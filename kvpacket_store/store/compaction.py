"""Writing ``data.mdb`` anew without the pages that are free, beside the folder, then in its place.

The copy is made in a folder of its own next to the store's, so that the store never takes more than
its cap, and comes in by one rename: whenever the process ends, the old file or the new one is
there, whole.

That folder has a marker, written before anything else and locked as long as the compaction runs.
Only what has one, and is in nobody's hands, is deleted as a leftover: a name proves nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvpacket_store.durable import sync
from kvpacket_store.errors import StoreError
from kvpacket_store.store.database import DATA_FILE
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.locks import USE_LOCK_FILE

__all__ = ["MARKER_FILE", "compact_file", "delete_leftovers"]

MARKER_FILE = "compaction.marker"


def compact_file(environment: Environment) -> None:
    """Compact; no other process may have the store open, and this one waits.

    Raises
    ------
    StoreLockedError
        Another process has it open.
    StoreFullError
        The disk has no room for the copy. Nothing has changed.
    StoreError
        Beside or in the folder nothing may be written, or it is a file system of its own.
    """
    folder = environment.path.resolve()  # a link's target may be on another disk
    with environment.alone() as handle:
        delete_leftovers(folder)
        _require_one_file_system(folder)
        with _nursery(folder) as nursery:
            handle.copy(os.fspath(nursery), compact=True)
            copied = nursery / DATA_FILE
            _adopt_owner(copied, folder / DATA_FILE)
            sync(copied)
            environment.close_file()
            try:
                copied.rename(folder / DATA_FILE)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise _other_file_system(folder) from error
                raise
            sync(folder)


def delete_leftovers(folder: Path) -> int:
    """Delete what compactions that were killed have left. Return how many."""
    folder = folder.resolve()
    name = re.compile(re.escape(_prefix(folder)) + "[a-z0-9_]{8}")  # as mkdtemp ends it
    found = [path for path in folder.parent.iterdir() if name.fullmatch(path.name)]
    return sum(_delete_leftover(path) for path in found)


def _delete_leftover(path: Path) -> bool:
    """Delete the folder of a compaction that is not running, and that nobody opened as a store."""
    marker = path / MARKER_FILE
    with suppress(PermissionError):
        if path.is_symlink() or not marker.is_file():
            return False
        with _locked(marker) as is_over, _locked(path / USE_LOCK_FILE) as is_unused:
            if is_over and is_unused:
                shutil.rmtree(path, ignore_errors=True)
                return True
    return False


@contextmanager
def _nursery(folder: Path) -> Iterator[Path]:
    """Give a folder beside the store's for as long as the copy is made."""
    nursery = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
    try:
        (nursery / MARKER_FILE).touch(mode=0o600)
        with _locked(nursery / MARKER_FILE):
            yield nursery
    finally:
        shutil.rmtree(nursery, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file, and say whether that went well; one that is not there is nobody's."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield True
        return
    try:
        is_free = False
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        yield is_free
    finally:
        os.close(descriptor)


def _prefix(folder: Path) -> str:
    return f".{folder.name}.compact."


def _require_one_file_system(folder: Path) -> None:
    if folder.stat().st_dev != folder.parent.stat().st_dev:
        raise _other_file_system(folder)


def _other_file_system(folder: Path) -> StoreError:
    return StoreError(
        f"store {folder} is the root of a file system of its own (a mount point), so a compacted "
        "copy beside it cannot take its place; nothing has changed. Move the store into a folder "
        "inside that file system, then compact"
    )


def _adopt_owner(copied: Path, original: Path) -> None:
    """Let the same users at it, whoever compacts."""
    shutil.copymode(original, copied)
    before, after = original.stat(), copied.stat()
    if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
        os.chown(copied, before.st_uid, before.st_gid)
