"""A store: one folder, many processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kvpacket_store.durable import sync
from kvpacket_store.errors import (
    CorruptRecordError,
    NotFoundError,
    StoreCorruptError,
    UsageError,
)
from kvpacket_store.store import registry
from kvpacket_store.store.check import check_file, check_tables
from kvpacket_store.store.database import DATA_FILE
from kvpacket_store.store.disk_use import FolderUse, bytes_for_data
from kvpacket_store.store.document_shelf import DocumentShelf
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.failures import as_store_error
from kvpacket_store.store.meta import MIN_MAX_BYTES, StoreMeta
from kvpacket_store.store.packet_shelf import PacketShelf
from kvpacket_store.store.quality_shelf import QualityShelf
from kvpacket_store.store.read_counts import ReadCounter
from kvpacket_store.store.reports import Damage
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import META_STORE, Table
from kvpacket_store.store.shared_shelf import SharedShelf
from kvpacket_store.store.space_shelf import SpaceShelf
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.value_shelf import ValueShelf
from kvpacket_store.store.writer import Writer

__all__ = ["PacketStore"]

_MIN_DATA_BYTES = 2 * 4096
_MIN_ROOM_BYTES = 256 << 10


class PacketStore(DocumentShelf, PacketShelf, SharedShelf, SpaceShelf, QualityShelf, ValueShelf):
    """Documents, packets and embeddings in an LMDB folder. Bytes only: no arrays, no models.

    Any number of processes and threads may read and write at once. What a call has returned from
    is on the disk. A handle may be used after a fork; the child opens the database anew.

    Examples
    --------
    >>> import tempfile
    >>> meta = StoreMeta(model="m", fingerprint={}, layout={}, rope=(), adapter=None,
    ...                  adapter_digest="none", codec="raw", layers=1, kv_dtype="bf16",
    ...                  recipe="alone-1", segment_tokens=512, max_bytes=None, created_at="")
    >>> with (tempfile.TemporaryDirectory() as folder,
    ...       PacketStore.create(Path(folder, "x.kvps"), meta) as store):
    ...     store.count(), store.check()
    (0, [])
    """

    def __init__(
        self, path: Path, environment: Environment, meta: StoreMeta, *, is_read_only: bool
    ) -> None:
        self.path = path
        self.meta = meta
        self._environment = environment
        self._reads = ReadCounter()
        self._writer = Writer(environment, meta.packet_ttl_s, is_read_only=is_read_only)
        self._is_closed = False

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        meta: StoreMeta,
        *,
        map_bytes: int | None = None,
        furnish: Callable[[Path], None] = lambda folder: None,
    ) -> Self:
        """Make a store and open it.

        Parameters
        ----------
        path : path
            A folder that is empty or not there yet.
        meta : StoreMeta
            What the store is for.
        map_bytes : int or None
            Address space to reserve at first; it grows as needed. None: plenty.
        furnish : callable
            Puts into the folder, before it is in its place, what else has to be there.

        Raises
        ------
        UsageError
            The folder holds something; or ``max_bytes`` leaves nothing to documents beside what
            ``furnish`` puts there.
        StoreError, StoreFullError
            It cannot be made there.
        """
        folder = Path(path).absolute()
        description = pack(json_bytes(meta.to_dict()))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            nursery = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                _describe(nursery, description)
                furnish(nursery)
                _require_room(nursery, meta.max_bytes)
                _move_into_place(nursery, folder)
            finally:
                shutil.rmtree(nursery, ignore_errors=True)
        except OSError as error:
            raise as_store_error(error, folder) from error
        return cls.open(folder, map_bytes=map_bytes)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        map_bytes: int | None = None,
        read_only: bool | None = None,
    ) -> Self:
        """Open a store.

        Parameters
        ----------
        path : path
            Its folder.
        map_bytes : int or None
            Address space to reserve at first; it grows as needed. None: plenty.
        read_only : bool or None
            True refuses every write. None: for writing where the folder's files may be written,
            else for reading alone.

        Raises
        ------
        NotFoundError
            There is none.
        UnsupportedFormatError
            A later version made it.
        StoreCorruptError
            It is damaged beyond opening; restore it from a copy.
        StoreLockedError
            It is being compacted; or this process cannot lock it, and another has it open.
        StoreError
            As the message says.
        """
        folder = Path(path).absolute()
        _require_store(folder)
        try:
            environment = registry.acquire(folder, map_bytes, read_only=read_only)
        except OSError as error:
            raise as_store_error(error, folder) from error
        try:
            meta = _read_meta(environment, folder)
            if meta.max_bytes is not None and environment.cap_bytes is None:
                environment.set_cap(meta.max_bytes)
        except BaseException:
            registry.release(environment)
            raise
        is_read_only = bool(read_only) or environment.is_read_only
        return cls(folder, environment, meta, is_read_only=is_read_only)

    def change_codec(
        self,
        codec: str,
        layers: int,
        codec_pack: str | None,
        base_step: tuple[tuple[str, str], ...] | None = None,
    ) -> None:
        """Have new packets encoded otherwise; those that are here stay what they are.

        Other processes that have the store open go on as before until they open it again.

        Raises
        ------
        ReadOnlyError
            The store is open for reading alone.
        """

        def action(tx: Transaction) -> StoreMeta:
            values = unpack_json(tx.get(Table.META, META_STORE) or b"", "the store's description")
            now = StoreMeta.from_dict(values)
            changed = replace(
                now, codec=codec, layers=layers, codec_pack=codec_pack, base_step=base_step
            )
            tx.put(Table.META, META_STORE, pack(json_bytes(changed.to_dict())))
            return changed

        self.meta = self._writer.write(action, frees_space=True)

    @property
    def is_read_only(self) -> bool:
        """Whether every write is refused with `ReadOnlyError`."""
        return self._writer.is_read_only

    def close(self) -> None:
        """Wait for running calls and close; a second time does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.flush()
            registry.release(self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def check(self, *, deep: bool = False) -> list[Damage]:
        """Look for damage: pages, references, chunks, counters.

        Writers may go on, but the file cannot reuse freed pages meanwhile.

        Parameters
        ----------
        deep : bool
            Read every byte against its checksum.

        Returns
        -------
        list of Damage
            Empty where everything holds.
        """
        with self._environment.read() as tx:
            damage = check_file(self.path)
            return damage or check_tables(tx, deep=deep)


def _describe(folder: Path, description: bytes) -> None:
    environment = Environment(folder, create=True)
    try:
        environment.write(lambda tx: tx.put(Table.META, META_STORE, description))
    finally:
        environment.close()


def _require_room(folder: Path, cap_bytes: int | None) -> None:
    """Refuse a cap that is used up before the first document comes."""
    if cap_bytes is None:
        return
    use = FolderUse.of(folder)
    if bytes_for_data(cap_bytes, use) < _MIN_ROOM_BYTES:
        raise UsageError(
            f"max_bytes {cap_bytes} is too little: the adapter and other files of the store take "
            f"{use.num_bytes} bytes of it; pass {2 * (use.num_bytes + MIN_MAX_BYTES)} or more, or "
            "None"
        )


def _move_into_place(nursery: Path, folder: Path) -> None:
    """Make the finished folder appear at once, and last."""
    try:
        nursery.rename(folder)
    except OSError as error:
        if folder.exists():
            raise UsageError(
                f"{folder} is there already and not empty; open it, or choose another path"
            ) from error
        raise
    for changed in (folder, folder.parent):
        sync(changed)


def _require_store(folder: Path) -> None:
    data = folder / DATA_FILE
    try:
        data_bytes = data.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"no store at {folder}; make one with `kvps init`") from None
    except OSError as error:
        raise as_store_error(error, folder) from error
    if data_bytes < _MIN_DATA_BYTES:
        raise StoreCorruptError(
            f"store {folder}: {DATA_FILE} has only {data_bytes} bytes; restore it from a copy"
        )


def _read_meta(environment: Environment, folder: Path) -> StoreMeta:
    with environment.read() as tx:
        row = tx.get(Table.META, META_STORE)
    if row is None:
        raise NotFoundError(f"{folder} holds an LMDB database that is no store")
    try:
        return StoreMeta.from_dict(unpack_json(row, "the store's description"))
    except CorruptRecordError as error:
        raise StoreCorruptError(f"store {folder}: {error}; restore it from a copy") from error
