"""On the disk, not only in its cache: a rename lasts once the folder is synced as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["sync", "written_whole"]


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


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a file to write in the place of ``path``: it is there, and on the disk, at the end.

    Whatever is raised in the block, ``path`` is as it was.

    Raises
    ------
    OSError
        It cannot be put there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as scratch:
    ...         _ = scratch.write_text("whole")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield scratch
        sync(scratch)
        scratch.replace(path)
        sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)
