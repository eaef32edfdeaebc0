"""What a store's folder takes on disk, counted in blocks, and how a cap on it is shared out.

``data.mdb`` may fill what others leave: the adapter, the locks and codec packs, which stay, and
what is derived from the store in folders of its own (the snapshots of an index). For the latter a
share is kept free, so that a full store can still have one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvpacket_store.store.database import DATA_FILE

__all__ = ["PACKS_FOLDER", "FolderUse", "bytes_for_data", "changes_in", "folder_bytes"]

PACKS_FOLDER = "codec-packs"
"""Where a store keeps what its records were coded with."""

_BLOCK_BYTES = 4096
_DERIVED_SHARE = 16
_MAX_DERIVED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FolderUse:
    """What lies beside ``data.mdb``.

    Parameters
    ----------
    fixed_bytes : int
        Of files in the folder itself (the adapter, the locks), and of codec packs.
    derived_bytes : int
        Of other folders in it, with all that they hold.
    """

    fixed_bytes: int
    derived_bytes: int

    @property
    def num_bytes(self) -> int:
        """Of both."""
        return self.fixed_bytes + self.derived_bytes

    @classmethod
    def of(cls, folder: Path) -> FolderUse:
        """Look; this asks for the status of every file."""
        fixed_bytes = derived_bytes = 0
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                num_bytes = sum(map(_bytes_of, [path, *_inside(path)]))
                if path.name == PACKS_FOLDER:
                    fixed_bytes += num_bytes
                else:
                    derived_bytes += num_bytes
            elif path.name != DATA_FILE:
                fixed_bytes += _bytes_of(path)
        return cls(fixed_bytes, derived_bytes)


def bytes_for_data(cap_bytes: int, use: FolderUse) -> int:
    """Return how much of a cap is left to ``data.mdb``; 0 where others take all of it.

    Examples
    --------
    >>> bytes_for_data(1 << 20, FolderUse(fixed_bytes=8192, derived_bytes=0))
    974848
    """
    kept_bytes = min(_MAX_DERIVED_BYTES, cap_bytes // _DERIVED_SHARE)
    return max(0, cap_bytes - use.fixed_bytes - max(use.derived_bytes, kept_bytes))


def changes_in(folder: Path) -> tuple[int, ...]:
    """Return what differs once a file has come, gone or been replaced, for a few calls' work."""
    folders = [folder, *(path for path in folder.iterdir() if path.is_dir())]
    return tuple(0 if (status := _status(path)) is None else status.st_mtime_ns for path in folders)


def folder_bytes(folder: Path) -> int:
    """Count the blocks that everything in a folder takes; files that vanish meanwhile take none."""
    statuses = (_status(path) for path in _inside(folder))
    return sum(status.st_blocks * 512 for status in statuses if status is not None)


def _inside(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        yield from (Path(root, name) for name in folders + files)


def _bytes_of(path: Path) -> int:
    """Count blocks, and those that a file which is new may not have been given yet."""
    status = _status(path)
    if status is None:
        return 0
    return max(status.st_blocks * 512, -(-status.st_size // _BLOCK_BYTES) * _BLOCK_BYTES)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
