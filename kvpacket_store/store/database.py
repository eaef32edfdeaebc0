"""Opening LMDB: the options that are never others, and the tables."""

from __future__ import annotations

import enum
import os
import shutil
from pathlib import Path
from typing import Any

import lmdb

from kvpacket_store.errors import StoreCorruptError
from kvpacket_store.store.schema import Table

__all__ = [
    "DATA_FILE",
    "LOCK_FILE",
    "Access",
    "access_to",
    "default_map_bytes",
    "open_database",
    "open_tables",
    "require_whole_file",
]

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"

_MAX_READERS = 2048
_MAX_TABLES = 32
_MIN_MAP_BYTES = 1 << 20
_MAX_DEFAULT_MAP_BYTES = 1 << 40


class Access(enum.Enum):
    """What may be done with a store's files."""

    WRITE = "write"
    READ = "read"
    READ_WITHOUT_LOCKS = "read without locks"


def access_to(path: Path, read_only: bool | None) -> Access:
    """Decide how to open the store in a folder; None: for writing if that is allowed."""
    may_lock = _may_write(path / LOCK_FILE)
    if not read_only and ((may_lock and _may_write(path / DATA_FILE)) or read_only is False):
        return Access.WRITE
    return Access.READ if may_lock else Access.READ_WITHOUT_LOCKS


def _may_write(path: Path) -> bool:
    """Ask without opening: to close ``lock.mdb`` would lose this process's locks on it."""
    if not path.exists():
        path = path.parent
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def default_map_bytes(path: Path) -> int:
    """Return address space enough that the map hardly ever has to grow: twice the disk."""
    folder = path if path.exists() else path.parent
    return min(max(2 * shutil.disk_usage(folder).total, _MIN_MAP_BYTES), _MAX_DEFAULT_MAP_BYTES)


def open_database(path: Path, map_bytes: int, create: bool, access: Access = Access.WRITE) -> Any:
    """Open ``data.mdb`` with as much of the address space asked for as the system gives.

    Never ``writemap`` (a full disk would kill the process), always synced commits: what a call
    acknowledged is on the disk.
    """
    while True:
        try:
            handle = lmdb.open(
                os.fspath(path),
                map_size=map_bytes,
                mode=0o600,  # K and V are as sensitive as the text
                create=create,
                readonly=access is not Access.WRITE,
                lock=access is not Access.READ_WITHOUT_LOCKS,
                max_readers=_MAX_READERS,
                max_dbs=_MAX_TABLES,
                lib_version=0,
            )
        except lmdb.MapResizedError:  # another process grew the map between two steps of opening
            continue
        except lmdb.MemoryError:
            if map_bytes <= _MIN_MAP_BYTES:
                raise
            map_bytes //= 2
        else:
            handle.reader_check()  # free what killed readers hold
            return handle


def open_tables(handle: Any, create: bool, access: Access = Access.WRITE) -> dict[Table, Any]:
    """Open every table, or make those that are missing.

    py-lmdb forgets tables that a read transaction opened, so this waits for a writer, where there
    can be one.
    """
    while True:
        try:
            if access is not Access.WRITE:
                return {table: _open_table(handle, table, create=False) for table in Table}
            with handle.begin(write=True) as txn:  # writes nothing, unless it creates
                return {
                    table: _open_table(handle, table, txn=txn, create=create) for table in Table
                }
        except lmdb.MapResizedError:  # another process grew the map since it was opened here
            handle.set_mapsize(0)


def _open_table(handle: Any, table: Table, **options: Any) -> Any:
    return handle.open_db(table.encode(), dupsort=table is Table.REFERENCES, **options)


def require_whole_file(handle: Any, path: Path) -> None:
    """Refuse a file that was cut: touching a page that is not there kills the process."""
    pages = handle.info()["last_pgno"] + 1
    needed_bytes = pages * handle.stat()["psize"]
    file_bytes = (path / DATA_FILE).stat().st_size
    if file_bytes < needed_bytes:
        raise StoreCorruptError(
            f"store {path}: {DATA_FILE} has {file_bytes} bytes where {needed_bytes} are in use; "
            "it was cut. Restore it from a copy, or ingest into a new store"
        )
