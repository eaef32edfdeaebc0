"""What is in a store: documents listed, shown and deleted, packets taken out, sizes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.arguments import is_count, is_count_or_zero
from kvpacket_store.api.codec_choice import PackNeed
from kvpacket_store.api.codec_packs import CodecPacks
from kvpacket_store.api.reports import DocumentEntry, Listing, PacketEntry, StatsReport
from kvpacket_store.api.statistics import collect_statistics
from kvpacket_store.errors import CodecError, NotFoundError, UsageError
from kvpacket_store.store import DocumentManifest, PacketStore, SpaceReport, StoreMeta
from kvpacket_store.types import KVDtype, KVLayout, LayerLayout

if TYPE_CHECKING:
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["DEFAULT_NAMESPACE", "Catalogue"]

DEFAULT_NAMESPACE = "default"


class Catalogue:
    """The part of a `Store` that needs neither torch nor the model."""

    path: Path
    _packets: PacketStore

    @property
    def meta(self) -> StoreMeta:
        """What the store was made for."""
        return self._packets.meta

    @property
    def packets(self) -> PacketStore:
        """The room below: records as bytes."""
        return self._packets

    @property
    def kv_dtype(self) -> KVDtype:
        """What its packets hold."""
        return KVDtype(self.meta.kv_dtype)

    @cached_property
    def layout(self) -> KVLayout:
        """Shape of its packets' K and V."""
        stored = dict(self.meta.layout)
        stored["layers"] = tuple(LayerLayout(**layer) for layer in stored["layers"])
        return KVLayout(**stored)

    @cached_property
    def codec_packs(self) -> CodecPacks:
        """What its records were coded with, now and before."""
        return CodecPacks(self.path)

    @property
    def codec_pack(self) -> CodecPack | None:
        """What new records are coded with; None where the level takes no pack.

        Raises
        ------
        LevelUnavailableError
            Its file is lost or damaged, and it is none of those that ship.
        """
        digest = self.meta.codec_pack
        return None if digest is None else self.codec_packs.find(digest)

    @property
    def pack_need(self) -> PackNeed:
        """What a codec pack has to be made for, to be of use here."""
        return PackNeed(self.meta.fingerprint["weights"], self.kv_dtype, self.layout)

    def list(
        self,
        *,
        namespace: str | None = DEFAULT_NAMESPACE,
        limit: int = 100,
        after: str | None = None,
    ) -> Listing:
        """Return a page of documents, ordered by id; damaged ones are named apart."""
        if not is_count(limit):
            raise UsageError(f"limit is {limit!r}; ask for at least 1")
        if namespace is not None:
            self.require_namespace(namespace)
        page = self._packets.document_page(namespace, limit, after)
        return Listing(
            [self._entry(manifest) for manifest in page.documents],
            page.following,
            [document_id for _, document_id in page.damaged],
        )

    def entry(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> dict[str, Any]:
        """Return one document as `list` has it; its text is not read.

        Raises
        ------
        NotFoundError
            There is no such document in the namespace.
        """
        return self._entry(self._packets.get_document(namespace, document_id)).to_dict()

    def show(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> dict[str, Any]:
        """Return one document: its entry, text and content hash."""
        manifest = self._packets.get_document(namespace, document_id)
        return {
            **self._entry(manifest).to_dict(),
            "content_hash": manifest.content_hash,
            "text": self._packets.document_text(namespace, document_id),
        }

    def delete(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Delete a document; packets that no other document of the namespace shares go with it.

        Raises
        ------
        NotFoundError
            There is no such document in the namespace.
        """
        self._packets.delete_document(namespace, document_id)

    def pin(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Keep a document's packets whatever needs room; `unpin` lets go again.

        Raises
        ------
        NotFoundError
            There is no such document in the namespace.
        """
        self._packets.pin_document(namespace, document_id)

    def unpin(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a document's packets give way to others again."""
        self._packets.unpin_document(namespace, document_id)

    def gc(self, *, grace_s: int = 3600) -> SpaceReport:
        """Delete what nothing refers to (not younger than the grace) and what is past its time.

        Raises
        ------
        UsageError
            The grace is no number of seconds.
        """
        if not is_count_or_zero(grace_s):
            raise UsageError(f"grace_s is {grace_s!r}; pass seconds, 0 or more")
        return self._packets.gc(grace_s=grace_s)

    def compact(self) -> SpaceReport:
        """Write the file anew without free pages.

        Raises
        ------
        StoreLockedError
            Another process has the store open.
        """
        return self._packets.compact()

    def stats(self, *, namespace: str | None = None) -> StatsReport:
        """Return sizes and bits per scalar of a namespace, or of the whole store."""
        if namespace is not None:
            self.require_namespace(namespace)
        return collect_statistics(self._packets, namespace, self.layout, self.kv_dtype)

    def require_namespace(self, namespace: str) -> None:
        """Raise NotFoundError where nobody has filed anything; the default one is always there."""
        if namespace != DEFAULT_NAMESPACE and namespace not in self._packets.namespaces():
            raise NotFoundError(f"no namespace {namespace!r} in {self.path}")

    def _entry(self, manifest: DocumentManifest) -> DocumentEntry:
        namespace = manifest.namespace or DEFAULT_NAMESPACE
        packets = [
            PacketEntry(ref.packet_key, ref.tokens, self._stored_bytes(namespace, ref.packet_key))
            for ref in manifest.segments
        ]
        return DocumentEntry(
            manifest.id,
            namespace,
            manifest.tokens,
            packets,
            dict(manifest.metadata),
            manifest.is_pinned,
        )

    def _stored_bytes(self, namespace: str, packet_key: str) -> int | None:
        try:
            return self._packets.get_manifest(namespace, packet_key).stored_bytes
        except (NotFoundError, CodecError):
            return None
