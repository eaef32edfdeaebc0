"""The second thread of an ingest: encode packets, commit documents."""

from __future__ import annotations

import queue
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvpacket_store.api.importance import wanted_importance
from kvpacket_store.api.records import make_record
from kvpacket_store.api.reports import IngestReport
from kvpacket_store.errors import DocumentError, StoreFullError
from kvpacket_store.store import DocumentManifest, DocumentWrite, PacketRecord, now_ms
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.prefill import BodyKV

__all__ = ["CommitWork", "IngestWriter", "PendingPacket", "StageWork"]

# Records of a document that is longer than this are stored before its manifest is: they become
# visible with it, and an interrupted ingest finds them again.
_STAGED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PendingPacket:
    """A packet on its way to the codec."""

    packet_key: str
    token_ids: TokenIds
    body: BodyKV
    importance: bytes | None = None


@dataclass(frozen=True, slots=True)
class StageWork:
    """Packets to encode."""

    packets: list[PendingPacket]


@dataclass(frozen=True, slots=True)
class CommitWork:
    """Documents whose packets have all been handed over."""

    documents: list[tuple[DocumentManifest, list[bytes]]]
    are_updates: list[bool]
    token_ids: dict[str, TokenIds]
    """Of every packet that the documents refer to, those that were found in the store included."""


class IngestWriter:
    """Takes work from the queue until None comes; after a failure it only drains."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        work: queue.Queue[StageWork | CommitWork | None],
        report: IngestReport,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._work = work
        self._report = report
        self._records: dict[str, PacketRecord] = {}
        self._record_bytes = 0
        self._failure: BaseException | None = None
        # what this run has filed does not give way to what it files next: then the store is full
        self._started_ms = now_ms()

    def put(self, work: StageWork | CommitWork) -> None:
        """Hand over work; waits while the writer is behind."""
        self._work.put(work)

    def raise_failure(self) -> None:
        """Raise what the thread met, in the caller's thread."""
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """Run the thread."""
        while (work := self._work.get()) is not None:
            if self._failure is not None:
                continue
            try:
                self._do(work)
            except BaseException as error:
                self._failure = error

    def _do(self, work: StageWork | CommitWork) -> None:
        if isinstance(work, StageWork):
            for packet in work.packets:
                self._encode(packet)
            if self._record_bytes >= _STAGED_BYTES:
                self._store.packets.stage_packets(
                    self._namespace, self._records, keep_since_ms=self._started_ms
                )
                self._forget_records()
        else:
            self._commit(work)

    def _encode(self, packet: PendingPacket) -> None:
        record = make_record(
            self._store,
            packet.packet_key,
            packet.token_ids,
            packet.body,
            importance=packet.importance,
        )
        self._records[packet.packet_key] = record
        self._record_bytes += record.stored_bytes
        self._report.packets.added += 1
        self._report.raw_bytes += record.raw_bytes
        self._report.stored_bytes += record.stored_bytes

    def _forget_records(self) -> None:
        self._records, self._record_bytes = {}, 0

    def _commit(self, work: CommitWork) -> None:
        writes = [
            DocumentWrite(
                manifest,
                {k: self._records[k] for k in manifest.packet_keys if k in self._records},
                embeddings,
            )
            for manifest, embeddings in work.documents
        ]
        try:
            self._put(writes)
        except (StoreFullError, DocumentError):  # as many of the group as fit, or are whole
            for write, is_update in zip(writes, work.are_updates, strict=True):
                self._commit_alone(write, is_update, work.token_ids)
        else:
            for is_update in work.are_updates:
                self._count(is_update)
        self._forget_records()

    def _commit_alone(
        self, write: DocumentWrite, is_update: bool, token_ids: dict[str, TokenIds]
    ) -> None:
        try:
            self._put([write])
        except DocumentError:
            # another process has let go of a packet that was found here: make it again
            try:
                self._put([replace(write, records=self._all_records(write, token_ids))])
            except DocumentError as error:
                self._report.fail(write.manifest.id, error.reason)
                return
        self._count(is_update)

    def _all_records(
        self, write: DocumentWrite, token_ids: dict[str, TokenIds]
    ) -> dict[str, PacketRecord]:
        records = dict(write.records)
        for key in write.manifest.packet_keys:
            if key not in records:
                body = self._store.prefiller.segment(token_ids[key])
                records[key] = make_record(
                    self._store,
                    key,
                    token_ids[key],
                    body,
                    importance=wanted_importance(self._store, body, token_ids[key]),
                )
        return records

    def _put(self, writes: list[DocumentWrite]) -> None:
        self._store.packets.put_documents(self._namespace, writes, keep_since_ms=self._started_ms)

    def _count(self, is_update: bool) -> None:
        if is_update:
            self._report.documents.updated += 1
        else:
            self._report.documents.added += 1
