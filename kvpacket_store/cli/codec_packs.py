"""The codec packs that are at hand: those that ship, those in a store's folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpacket_store.errors import CodecError, UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from kvpacket_store.api import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["FoundPack", "find_packs", "named_pack"]


@dataclass(frozen=True, slots=True)
class FoundPack:
    """A pack file: where it is, and the pack, or why there is none in it."""

    where: str
    file: str
    num_bytes: int
    pack: CodecPack | None
    damage: str | None

    def to_dict(self, store: Store) -> dict[str, Any]:
        """Return a pack of ``kvps codec list --json``."""
        found: dict[str, Any] = {
            "digest": None,
            "model": None,
            "kv_dtype": None,
            "bytes": self.num_bytes,
            "where": self.where,
            "file": self.file,
            "fits": False,
            "in_use": False,
            "damage": self.damage,
            "about": None,
        }
        if self.pack is not None:
            found |= {
                "digest": self.pack.digest,
                "model": self.pack.about.get("model"),
                "kv_dtype": self.pack.kv_dtype.value,
                "fits": store.pack_need.misfit(self.pack) is None,
                "in_use": self.pack.digest == store.meta.codec_pack,
                "about": dict(self.pack.about),
            }
        return found


def find_packs(store: Store) -> Iterator[FoundPack]:
    """Yield the packs that ship, then those in the store's folder."""
    yield from _packs_in("shipped", resources.files("kvpacket_store.codec") / "packs")
    if store.codec_packs.folder.is_dir():
        yield from _packs_in("store", store.codec_packs.folder)


def named_pack(store: Store, asked: str) -> CodecPack | Path:
    """Return the pack file of that name, or the pack whose digest begins like that.

    Raises
    ------
    UsageError
        No file, and no pack or several packs begin so.
    """
    if Path(asked).is_file():
        return Path(asked)
    here = {found.pack.digest: found.pack for found in find_packs(store) if found.pack is not None}
    chosen = [pack for digest, pack in here.items() if digest.startswith(asked)]
    if len(chosen) != 1:
        names = ", ".join(digest[:12] for digest in here) or "none"
        raise UsageError(
            f"{asked!r} is no file, and begins the digest of {len(chosen)} of the codec packs "
            f"that are here: {names}"
        )
    return chosen[0]


def _packs_in(where: str, folder: Traversable) -> Iterator[FoundPack]:
    from kvpacket_store.codec.linear.pack import CodecPack

    files = [file for file in folder.iterdir() if file.name.endswith(".kvc")]
    for file in sorted(files, key=lambda file: file.name):
        data = b""
        try:
            data = file.read_bytes()
            yield FoundPack(where, file.name, len(data), CodecPack.from_bytes(data), None)
        except (CodecError, OSError) as error:
            yield FoundPack(where, file.name, len(data), None, str(error))
