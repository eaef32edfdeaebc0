"""Codec packs as files: those of a store, those that ship, one that is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpacket_store.errors import CodecError, LevelUnavailableError, UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from kvpacket_store.api import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["FoundPack", "find_packs", "pack_for_recode", "read_pack"]

_MAX_FILE_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class FoundPack:
    """A pack file: where it is, and the pack, or why there is none in it."""

    where: str
    name: str
    num_bytes: int
    pack: CodecPack | None
    reason: str | None

    def to_dict(self, store: Store) -> dict[str, Any]:
        """Return the fields of ``kvps codec list --json``."""
        pack, used = self.pack, store.codec_pack
        return {
            "digest": None if pack is None else pack.digest,
            "model": None if pack is None else pack.about.get("model"),
            "kv_dtype": None if pack is None else pack.kv_dtype.value,
            "bytes": self.num_bytes,
            "where": self.where,
            "file": self.name,
            "fits": pack is not None and fits(pack, store),
            "in_use": pack is not None and used is not None and pack.digest == used.digest,
            "damage": self.reason,
            "about": None if pack is None else dict(pack.about),
        }


def find_packs(store: Store) -> Iterator[FoundPack]:
    """Yield the packs that ship, then those in the store's folder."""
    from kvpacket_store.api.codec_training import PACK_FOLDER

    shipped = resources.files("kvpacket_store.codec") / "packs"
    yield from _packs_in("shipped", shipped)
    if (own := store.path / PACK_FOLDER).is_dir():
        yield from _packs_in("store", own)


def fits(pack: CodecPack, store: Store) -> bool:
    """Say whether the pack is of the store's model and KV dtype."""
    layout = store.layout
    wanted = (layout.num_layers, layout.num_kv_heads, layout.head_dim)
    return (pack.weights, pack.kv_dtype, tuple(pack.shape[:3])) == (
        store.meta.fingerprint["weights"],
        store.kv_dtype,
        wanted,
    )


def read_pack(path: Path) -> CodecPack:
    """Read a pack file.

    Raises
    ------
    UsageError
        There is no such file, or no pack in it.
    """
    from kvpacket_store.codec.linear.pack import CodecPack

    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than any codec pack")
        return CodecPack.from_bytes(path.read_bytes())
    except OSError as error:
        raise UsageError(f"codec pack {path} cannot be read ({error.strerror})") from error
    except CodecError as error:
        raise UsageError(f"{path}: {error}") from error


def pack_for_recode(store: Store, asked: str | None) -> CodecPack:
    """Return the pack that was asked for (a file, or the beginning of a digest), or the only one.

    Raises
    ------
    UsageError
        None, or more than one, answers to that.
    LevelUnavailableError
        No pack of the store's model is here.
    """
    if asked is not None and Path(asked).is_file():
        return read_pack(Path(asked))
    here = {found.pack.digest: found.pack for found in find_packs(store) if found.pack is not None}
    fitting = [pack for pack in here.values() if fits(pack, store)]
    if not fitting:
        raise LevelUnavailableError(
            f"no codec pack of model {store.meta.model} is here; make one: "
            f"kvps codec train {store.path}"
        )
    chosen = [pack for pack in fitting if asked is None or pack.digest.startswith(asked)]
    if len(chosen) != 1:
        names = ", ".join(pack.digest[:12] for pack in fitting)
        raise UsageError(f"name one of {len(fitting)} codec packs with --pack: {names}")
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
