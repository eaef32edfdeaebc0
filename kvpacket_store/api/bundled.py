"""Records of a bundle: checked before they are filed; the codec packs that they need come first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.api.codec_packs import keep_within_cap
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.bundle import (
    Bundle,
    ImportReport,
    import_bundle,
    read_bundle,
    require_same_identity,
)
from kvpacket_store.codec import named_pack
from kvpacket_store.errors import (
    BundleError,
    CapReachedError,
    CodecError,
    CorruptRecordError,
    KVPacketError,
)
from kvpacket_store.store import PacketRecord

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["BundledRecords", "file_bundle"]


def file_bundle(store: Store, path: Path, namespace: str) -> ImportReport:
    """File a bundle's documents in a namespace; arguments and errors are ``Store.import_bundle``'s.

    The packs that its records need are brought first.
    """
    with read_bundle(path) as bundle:
        require_same_identity(bundle.identity, store.meta)
        records = BundledRecords(store, bundle)
        records.bring_packs()
        return import_bundle(
            store.packets, bundle, namespace=namespace, check=records.require_genuine
        )


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
        self._refused: dict[str, KVPacketError] = {}
        self._last: CodecPack | None = None  # one at a time: a small file may be a large pack

    def bring_packs(self) -> None:
        """Put the packs that the store lacks into it, each once a genuine record has needed it.

        Also where all documents are in the store already: its own pack may be lost.

        Raises
        ------
        StoreError, StoreFullError
            A pack cannot be written. One that the cap leaves no room for is told by document.
        """
        lacked = {digest for digest in self._bundle.codec_packs if self._lacks(digest)}
        for record in self._records() if lacked else ():
            digest = named_pack(record.record)
            if digest in lacked and self._bring(digest, record):
                lacked.remove(digest)
            if not lacked:
                break
        self._last = None

    def require_genuine(self, record: PacketRecord) -> None:
        """Refuse a record that does not hold what stands beside it.

        Raises
        ------
        CodecError
            The record, or the pack that it names, is damaged, lost or not what it should be.
        """
        digest = named_pack(record.record)
        if digest is not None and self._lacks(digest):
            reason = self._refused.get(digest, "it is neither in the store nor in the bundle")
            raise CodecError(
                f"codec pack {digest[:12]}: {reason}; export again from a store that has it, or "
                "ingest the document"
            )
        self._loader.require_genuine(record)

    def _lacks(self, digest: str) -> bool:
        return not self._store.codec_packs.has(digest)

    def _records(self) -> Iterator[PacketRecord]:
        """Yield what can be read; the import itself names what cannot."""
        for number in range(self._bundle.num_documents):
            with suppress(KVPacketError):
                _, packets, _ = self._bundle.document(number)
                for key in packets:
                    with suppress(KVPacketError):
                        yield packets[key]

    def _bring(self, digest: str, record: PacketRecord) -> bool:
        """Keep the pack if the record is genuine with it; say whether it needs no other record."""
        try:
            pack = self._read(digest)
            keep_it = self._is_genuine(record, pack)
            if keep_it:
                keep_within_cap(self._store, pack)
        except CapReachedError as error:
            self._refused[digest] = error
        except (CodecError, BundleError) as error:
            self._refused[digest] = error
        else:
            return keep_it
        return True

    def _is_genuine(self, record: PacketRecord, pack: CodecPack) -> bool:
        try:
            self._loader.require_genuine(record, pack)
        except CodecError:
            return False
        return True

    def _read(self, digest: str) -> CodecPack:
        from kvpacket_store.codec.linear.pack import CodecPack

        if self._last is not None and self._last.digest == digest:
            return self._last
        need, self._last = self._store.pack_need, None
        data = self._bundle.codec_pack(digest)
        pack = CodecPack.from_bytes(data, max_bytes=need.max_pack_bytes)
        if pack.digest != digest:
            raise CorruptRecordError("in the bundle is another pack of that name")
        if misfit := need.misfit(pack):
            raise CorruptRecordError(misfit)
        self._last = pack
        return pack
