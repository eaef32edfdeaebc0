"""From a bundle into a store: nothing is filed before the caller has looked at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvpacket_store.bundle.bundle import Bundle, BundledPackets
from kvpacket_store.bundle.identity import require_same_identity
from kvpacket_store.bundle.members import document_description
from kvpacket_store.bundle.reports import ImportFailure, ImportReport
from kvpacket_store.errors import (
    CancelledError,
    CodecError,
    DocumentError,
    KVPacketError,
    NotFoundError,
    StoreError,
    StoreFullError,
)
from kvpacket_store.store import DocumentManifest, DocumentWrite, PacketRecord, PacketStore, now_ms

__all__ = ["import_bundle"]

_GROUP_BYTES = 64 << 20
_GROUP_DOCUMENTS = 64


def import_bundle(
    store: PacketStore,
    bundle: Bundle,
    *,
    namespace: str,
    check: Callable[[PacketRecord], None],
) -> ImportReport:
    """File a bundle's documents with their packets.

    A document whose packets did not all travel is filed only where the store has the others. One
    that is damaged or fails ``check`` is left out and reported, and the rest goes on.

    Parameters
    ----------
    store : PacketStore
        Of the same model, adapter, dtype, recipe and embedder.
    bundle : Bundle
        As ``read_bundle`` opened it.
    namespace : str
        Where the documents go.
    check : callable
        Is given each record before it is filed, and raises a KVPacketError unless the record
        decodes to K and V of the digest, sizes and packet key that stand beside it. A checksum does
        not tell a forged record from a true one.

    Raises
    ------
    ModelMismatchError
        The bundle's packets are not of this store's kind; the message names what differs.
    StoreFullError, StoreError
        What was imported before stays; import again for the rest.
    """
    require_same_identity(bundle.identity, store.meta)
    run = _Import(store, namespace, check)
    for number in range(bundle.num_documents):
        run.take(bundle, number)
    run.flush()
    return run.report


@dataclass(frozen=True, slots=True)
class _Pending:
    """A document that waits for its group's commit."""

    write: DocumentWrite
    packets: BundledPackets
    brought: frozenset[str]
    is_update: bool


class _Import:
    """One import: what is under way, and what became of the rest."""

    def __init__(
        self, store: PacketStore, namespace: str, check: Callable[[PacketRecord], None]
    ) -> None:
        self.report = ImportReport()
        self._store = store
        self._namespace = namespace
        self._check = check
        self._ids: set[str] = set()
        self._group: list[_Pending] = []
        self._records: dict[str, PacketRecord] = {}
        self._group_bytes = 0
        self._added: set[str] = set()
        self._started_ms = now_ms()

    def take(self, bundle: Bundle, number: int) -> None:
        """Bring one document, or report why not."""
        document_id = document_description(number)
        try:
            manifest, packets, embeddings = bundle.document(number)
            document_id = manifest.id
            if document_id in self._ids:
                raise DocumentError(document_id, "an earlier document of the bundle has this id")
            self._ids.add(document_id)
            self._bring(manifest, packets, embeddings)
        except KVPacketError as error:
            self._fail(document_id, error)

    def flush(self) -> None:
        """Commit the group; where that cannot be, as many of its documents as can."""
        group, self._group = self._group, []
        try:
            self._put([pending.write for pending in group])
        except (DocumentError, StoreFullError):
            for pending in group:
                self._put_alone(pending)
        else:
            for pending in group:
                self._count(pending)
        self._records, self._group_bytes = {}, 0

    def _bring(
        self, manifest: DocumentManifest, packets: BundledPackets, embeddings: list[bytes] | None
    ) -> None:
        known = self._known(manifest.id)
        wanted = [key for key in manifest.packet_keys if not self._is_stored(key, packets)]
        if (
            known is not None
            and _is_same_content(known, manifest)
            and (embeddings is None or self._store.has_embeddings(self._namespace, known))
        ):
            self._keep(known, manifest, packets, wanted)
            return
        missing = [
            key
            for key in wanted
            if key not in packets
            and key not in self._records
            and not self._is_evicted(key, packets)
        ]
        if missing:
            raise DocumentError(
                manifest.id,
                f"prefill needed: {len(missing)} of its packets did not travel and are not in the "
                "store; ingest the document",
            )
        self._file(DocumentWrite(manifest, {}, embeddings), packets, wanted)

    def _file(self, write: DocumentWrite, packets: BundledPackets, wanted: list[str]) -> None:
        wanted = [key for key in wanted if key in packets and key not in self._records]
        num_bytes = sum(packets.record_bytes(key) for key in wanted)
        records = {}
        if num_bytes > _GROUP_BYTES:
            self._stage(packets, wanted)
        else:
            records = {key: self._checked(packets, key) for key in wanted}
        keys = write.manifest.packet_keys
        records |= {key: self._records[key] for key in keys if key in self._records}
        is_update = self._store.has_document(self._namespace, write.manifest.id)
        if self._group_bytes + num_bytes > _GROUP_BYTES or len(self._group) >= _GROUP_DOCUMENTS:
            self.flush()
        brought = frozenset(wanted).union(records)
        self._group.append(_Pending(replace(write, records=records), packets, brought, is_update))
        self._records |= records
        self._group_bytes += 0 if num_bytes > _GROUP_BYTES else num_bytes

    def _stage(self, packets: BundledPackets, wanted: list[str]) -> None:
        """File the packets of a long document one by one, once all of them are checked."""
        for key in wanted:
            self._checked(packets, key)
        for key in wanted:
            self._store.stage_packets(
                self._namespace, {key: packets[key]}, keep_since_ms=self._started_ms
            )

    def _checked(self, packets: BundledPackets, packet_key: str) -> PacketRecord:
        record = packets[packet_key]
        self._check(record)
        return record

    def _keep(
        self,
        known: DocumentManifest,
        manifest: DocumentManifest,
        packets: BundledPackets,
        wanted: list[str],
    ) -> None:
        """Keep what is unchanged; metadata may be new, and packets that were lost come back."""
        lost = [key for key in wanted if key in packets]
        for key in lost:
            record = self._checked(packets, key)
            self._store.replace_record(self._namespace, record, keep_since_ms=self._started_ms)
        self.report.packets_added += len(lost)
        has_new_metadata = (known.metadata_hash, known.metadata) != (
            manifest.metadata_hash,
            manifest.metadata,
        )
        if has_new_metadata:
            self._store.update_metadata(
                self._namespace, manifest.id, manifest.metadata, manifest.metadata_hash
            )
        if lost or has_new_metadata:
            self.report.updated += 1
        else:
            self.report.unchanged += 1

    def _known(self, document_id: str) -> DocumentManifest | None:
        try:
            return self._store.get_document(self._namespace, document_id)
        except (NotFoundError, CodecError):  # a damaged one is replaced
            return None

    def _is_stored(self, packet_key: str, packets: BundledPackets) -> bool:
        token_ids = packets.token_ids(packet_key)
        return self._store.has_packet(self._namespace, packet_key, token_ids)

    def _is_evicted(self, packet_key: str, packets: BundledPackets) -> bool:
        """Whether the store knows the packet and can prefill it again when it is needed."""
        try:
            manifest = self._store.get_manifest(self._namespace, packet_key)
        except (NotFoundError, CodecError):
            return False
        return manifest.is_evicted and packets.token_ids(packet_key) in (None, manifest.token_ids)

    def _put(self, writes: list[DocumentWrite]) -> None:
        """Commit; what this import itself has filed is not evicted for it."""
        self._store.put_documents(self._namespace, writes, keep_since_ms=self._started_ms)

    def _put_alone(self, pending: _Pending) -> None:
        write = pending.write
        try:
            try:
                self._put([write])
            except DocumentError:
                # an update before this one may have let go of a packet that was there
                records = dict(write.records) | {
                    key: self._checked(pending.packets, key)
                    for key in pending.packets
                    if key not in write.records and not self._is_stored(key, pending.packets)
                }
                self._put([replace(write, records=records)])
        except KVPacketError as error:
            self._fail(write.manifest.id, error)
        else:
            self._count(pending)

    def _count(self, pending: _Pending) -> None:
        if pending.is_update:
            self.report.updated += 1
        else:
            self.report.added += 1
        manifest = pending.write.manifest
        self.report.missing_embeddings += pending.write.embeddings is None and bool(
            manifest.segments
        )
        new = pending.brought - self._added
        self._added |= new
        self.report.packets_added += len(new)
        self.report.packets_reused += len(manifest.packet_keys) - len(new)

    def _fail(self, document_id: str, error: KVPacketError) -> None:
        """Report a document that is left out; what concerns the whole store ends the run."""
        if isinstance(error, (StoreError, CancelledError)):
            raise error
        reason = getattr(error, "reason", str(error))
        self.report.errors.append(ImportFailure(document_id, str(reason)))


def _is_same_content(known: DocumentManifest, manifest: DocumentManifest) -> bool:
    return known.content_hash == manifest.content_hash and known.segments == manifest.segments
