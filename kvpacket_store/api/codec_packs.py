"""The codec packs that a store's records were coded with: files in its folder, else the shipped."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.codec.packs import installed_packs
from kvpacket_store.durable import sync, written_whole
from kvpacket_store.errors import (
    CapReachedError,
    CodecError,
    CorruptRecordError,
    LevelUnavailableError,
    ReadOnlyError,
    UsageError,
)
from kvpacket_store.store.disk_use import PACKS_FOLDER
from kvpacket_store.store.failures import as_store_error

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["CodecPacks", "keep_within_cap", "load_pack"]

_SUFFIX = ".kvc"
_MAX_KNOWN = 4
_DIGEST = re.compile(r"[0-9a-f]{64}")


class CodecPacks:
    """Codec packs of one store folder, by digest; each is read once.

    A record names the pack that it was coded with, so a file stays as long as any record may be
    of it: files are added, never replaced by others.

    Parameters
    ----------
    folder : Path
        The store's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PACKS_FOLDER
        self._lock = threading.Lock()
        self._known: OrderedDict[str, CodecPack] = OrderedDict()

    def find(self, digest: str) -> CodecPack:
        """Return the pack of that digest: the store's own file, else a shipped one.

        Raises
        ------
        LevelUnavailableError
            Neither is there; the message says what is wrong with the file.
        """
        pack = self._known.get(digest)
        return self._remember(pack if pack is not None else self._load(digest))

    def has(self, digest: str) -> bool:
        """Say whether `find` finds it."""
        try:
            self.find(digest)
        except LevelUnavailableError:
            return False
        return True

    def to_bytes(self, digest: str) -> bytes | None:
        """Return the file of the pack of that digest; None: it is not to be had."""
        try:
            return self.find(digest).to_bytes()
        except LevelUnavailableError:
            return None

    def problem(self, digest: str) -> str | None:
        """Return what is wrong with the store's own file of a pack, if anything."""
        try:
            self._read(digest)
        except CodecError as error:
            return str(error)
        return None

    def keep(self, pack: CodecPack) -> None:
        """Put a pack into the folder: synced before it has its name, and whole or not at all.

        Raises
        ------
        StoreError, StoreFullError
            It cannot be written there.
        """
        try:
            self._keep(pack)
        except OSError as error:
            raise as_store_error(error, self.folder.parent) from error
        self._remember(pack)

    def _keep(self, pack: CodecPack) -> None:
        path = self._path(pack.digest)
        self.folder.mkdir(exist_ok=True)
        if self.problem(pack.digest) is None:
            path.touch()  # it is the newest now
            sync(self.folder)  # whoever wrote it may have been cut off before that
        else:
            with written_whole(path) as scratch:
                scratch.write_bytes(pack.to_bytes())
        sync(self.folder.parent)

    def kept(self) -> Iterator[CodecPack]:
        """Yield the packs of the folder, the newest first; damaged files are passed over."""
        found = [(-path.stat().st_mtime_ns, path.stem) for path in self.folder.glob(f"*{_SUFFIX}")]
        for _, digest in sorted(found):
            with contextlib.suppress(CodecError):
                yield self._remember(self._read(digest))

    def _remember(self, pack: CodecPack) -> CodecPack:
        """Hold the packs that were used last: many would be much memory."""
        with self._lock:
            self._known[pack.digest] = pack
            self._known.move_to_end(pack.digest)
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return pack

    def _load(self, digest: str) -> CodecPack:
        try:
            return self._read(digest)
        except CodecError as error:
            for pack in installed_packs():
                if pack.digest == digest:
                    return pack
            raise LevelUnavailableError(
                f"{error}; put it there from a copy (of this store, or of the one that a bundle "
                "came from), or go to another level with `kvps codec recode` and then "
                "`kvps verify --deep --repair`"
            ) from error

    def _read(self, digest: str) -> CodecPack:
        path = self._path(digest)
        if not path.is_file():
            raise CorruptRecordError(f"codec pack {path.name} is missing from the store")
        try:
            pack = load_pack(path)
        except (CodecError, UsageError) as error:
            raise CorruptRecordError(f"codec pack {path.name} of the store: {error}") from error
        if pack.digest != digest:
            raise CorruptRecordError(f"codec pack {path.name} of the store is another pack")
        return pack

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise CorruptRecordError(f"codec pack {digest!r:.80} has no digest for a name")
        return self.folder / f"{digest}{_SUFFIX}"


def keep_within_cap(store: Store, pack: CodecPack) -> Path:
    """Put a pack into the folder of a store, before any record names it; return its file.

    Raises
    ------
    ReadOnlyError
        The store is open for reading alone.
    CapReachedError
        The pack is new there, and would not fit under the store's byte cap. Nothing has changed.
    StoreError, StoreFullError
        It cannot be written there.
    """
    if store.packets.is_read_only:
        raise ReadOnlyError(f"store {store.path} is open for reading alone; it cannot take a pack")
    packs, cap_bytes = store.codec_packs, store.meta.max_bytes
    file = packs.folder / f"{pack.digest}{_SUFFIX}"
    if cap_bytes is not None and packs.problem(pack.digest) is not None:
        replaced_bytes = file.stat().st_size if file.is_file() else 0
        pack_bytes = len(pack.to_bytes())
        used_bytes = store.packets.stats().file_bytes - replaced_bytes
        if used_bytes + pack_bytes > cap_bytes:
            raise CapReachedError(
                f"store {store.path}: its byte cap leaves no room for the codec pack of "
                f"{pack_bytes} bytes ({used_bytes} of {cap_bytes} are used); nothing has changed. "
                "Delete documents and compact the store, or use one with a larger cap"
            )
    packs.keep(pack)
    return file


def load_pack(path: Path) -> CodecPack:
    """Read a codec pack file.

    Raises
    ------
    UsageError
        It cannot be read.
    CorruptRecordError, UnsupportedFormatError
        Damaged, of a later version, or no codec pack.
    """
    from kvpacket_store.codec.linear.pack import MAX_PACK_BYTES, CodecPack

    try:
        if path.stat().st_size > MAX_PACK_BYTES:
            raise CorruptRecordError(f"{path} is larger than a codec pack may be")
        return CodecPack.from_bytes(path.read_bytes())
    except OSError as error:
        raise UsageError(f"codec pack {path} cannot be read ({error}); correct that") from error
