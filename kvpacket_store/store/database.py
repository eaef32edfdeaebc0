"""Opening LMDB: the options that are never others, and the tables."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import lmdb

from kvpacket_store.store.schema import Table

__all__ = ["default_map_bytes", "open_database", "open_tables"]

_MAX_READERS = 2048
_MAX_TABLES = 32
_MIN_MAP_BYTES = 1 << 20
_MAX_DEFAULT_MAP_BYTES = 1 << 40


def default_map_bytes(path: Path) -> int:
    """Return address space enough that the map hardly ever has to grow: twice the disk."""
    folder = path if path.exists() else path.parent
    return min(max(2 * shutil.disk_usage(folder).total, _MIN_MAP_BYTES), _MAX_DEFAULT_MAP_BYTES)


def open_database(path: Path, map_bytes: int, create: bool) -> Any:
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


def open_tables(handle: Any, create: bool) -> dict[Table, Any]:
    """Open every table, or make those that are missing.

    py-lmdb forgets tables that a read transaction opened, so this waits for a writer.
    """
    while True:
        try:
            with handle.begin(write=True) as txn:  # writes nothing, unless it creates
                return {
                    table: handle.open_db(
                        table.encode(), txn, dupsort=table is Table.REFERENCES, create=create
                    )
                    for table in Table
                }
        except lmdb.MapResizedError:  # another process grew the map since it was opened here
            handle.set_mapsize(0)
