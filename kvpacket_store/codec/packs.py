"""Which codec packs are at hand: those handed in, and those that ship with the package."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

from kvpacket_store.errors import LevelUnavailableError, UsageError

if TYPE_CHECKING:
    from .linear.pack import CodecPack

__all__ = ["find_pack", "installed_packs", "pack_for"]


@functools.cache
def installed_packs() -> tuple[CodecPack, ...]:
    """Return the packs that ship with the package."""
    from .linear.pack import CodecPack

    folder = resources.files("kvpacket_store.codec") / "packs"
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".kvc")),
        key=lambda entry: entry.name,
    )
    return tuple(CodecPack.from_bytes(file.read_bytes()) for file in files)


def pack_for(weights: str) -> CodecPack | None:
    """Return the shipped pack of the model with this weights digest, if there is one."""
    return next((pack for pack in installed_packs() if pack.weights == weights), None)


def find_pack(digest: str, packs: Iterable[object] | None) -> CodecPack:
    """Return the pack of that digest, among those handed in or else the installed ones.

    Raises
    ------
    LevelUnavailableError
        It is not there.
    UsageError
        Something handed in is no codec pack.
    """
    from .linear.pack import CodecPack

    for pack in installed_packs() if packs is None else packs:
        if not isinstance(pack, CodecPack):
            raise UsageError(f"packs holds a {type(pack).__name__}; pass codec packs")
        if pack.digest == digest:
            return pack
    raise LevelUnavailableError(
        f"the record was coded with codec pack {digest[:12]}, which is not here; pass it in packs, "
        "or prefill the packet again from its token ids"
    )
