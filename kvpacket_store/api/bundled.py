"""Records of a bundle: checked before they are filed, with the codec packs that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpacket_store.api.codec_packs import keep_within_cap
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.bundle import Bundle
from kvpacket_store.codec import named_pack
from kvpacket_store.errors import CodecError, CorruptRecordError
from kvpacket_store.store import PacketRecord

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["BundledRecords"]


class BundledRecords:
    """The records of one bundle on their way into a store.

    Parameters
    ----------
    store : Store
        Open for writing.
    bundle : Bundle
        Open for as long as this is used.
    """

    def __init__(self, store: Store, bundle: Bundle) -> None:
        self._store = store
        self._bundle = bundle
        self._loader = PacketLoader(store)
        self._offered: dict[str, CodecPack | None] = {}

    def require_genuine(self, record: PacketRecord) -> None:
        """Refuse a record that does not hold what stands beside it; else keep the pack it needs.

        Raises
        ------
        BundleError, CodecError
            The record, or the pack that it names, is damaged or not what it should be.
        CapReachedError, StoreFullError, StoreError
            The pack cannot be put into the store.
        """
        digest = named_pack(record.record)
        pack = None if digest is None else self._offered_pack(digest)
        self._loader.require_genuine(record, pack)
        if pack is not None:  # not before a genuine record needed it
            keep_within_cap(self._store, pack)
            self._offered[pack.digest] = None

    def _offered_pack(self, digest: str) -> CodecPack | None:
        """Return the bundle's pack where the store has none of its own."""
        if digest not in self._offered:
            has_own = self._store.codec_packs.problem(digest) is None
            data = None if has_own else self._bundle.codec_pack(digest)
            self._offered[digest] = None if data is None else _read(data, digest)
        return self._offered[digest]


def _read(data: bytes, digest: str) -> CodecPack:
    from kvpacket_store.codec.linear.pack import CodecPack

    try:
        pack = CodecPack.from_bytes(data)
    except CodecError as error:
        raise CorruptRecordError(f"codec pack {digest[:12]} of the bundle: {error}") from error
    if pack.digest != digest:
        raise CorruptRecordError(f"codec pack {digest[:12]} of the bundle is another pack")
    return pack
