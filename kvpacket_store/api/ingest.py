"""Documents → packets: segment, prefill, encode, store. Prefill and codec overlap.

The main thread runs the model; a second one encodes and commits. What waits between them is bounded
by tokens, so memory is bounded whatever the corpus.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpacket_store.api.document_state import has_all_parts, is_there
from kvpacket_store.api.importance import wanted_importance
from kvpacket_store.api.incoming import checked_document, content_hash, metadata_hash
from kvpacket_store.api.ingest_writer import CommitWork, IngestWriter, PendingPacket, StageWork
from kvpacket_store.api.reports import IngestReport
from kvpacket_store.errors import (
    CodecError,
    ContextOverflowError,
    DocumentError,
    NotFoundError,
)
from kvpacket_store.store import DocumentManifest, SegmentRef
from kvpacket_store.types import Document, Segment, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.prefill import BodyKV

__all__ = ["Ingest", "IngestProgress"]

# A group is embedded together and handed over at once: 4,096 tokens of SmolLM2 are 94 MB of K,V.
_GROUP_TOKENS = 4096
_GROUP_DOCUMENTS = 32
_QUEUED_GROUPS = 2


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is."""

    documents: int
    tokens: int
    document_id: str


@dataclass(slots=True)
class _Prepared:
    """A document whose packets are prefilled, waiting for its group."""

    document: Document
    segments: list[Segment]
    keys: list[str]
    is_update: bool


class Ingest:
    """One run over a stream of documents.

    ``bodies`` are packets that were prefilled just now for something else, by packet key.
    """

    def __init__(
        self,
        store: Store,
        namespace: str,
        *,
        dry_run: bool = False,
        progress: Callable[[IngestProgress], None] | None = None,
        bodies: Mapping[str, BodyKV] | None = None,
    ) -> None:
        self._bodies = bodies or {}
        self._store = store
        self._namespace = namespace
        self._dry_run = dry_run
        self._progress = progress
        self._report = IngestReport(dry_run=dry_run)
        self._seen = 0
        self._group: list[_Prepared] = []
        self._pending: list[PendingPacket] = []
        self._pending_tokens = 0
        self._under_way: dict[str, TokenIds] = {}
        self._ids: set[str] = set()
        self._queue: queue.Queue[StageWork | CommitWork | None] = queue.Queue(_QUEUED_GROUPS)
        self._writer = IngestWriter(store, namespace, self._queue, self._report)

    def run(self, documents: Iterable[Document | Exception]) -> IngestReport:
        """Ingest everything and report; an interruption loses only what is not committed."""
        started = time.perf_counter()
        if not self._dry_run:
            # another embedder, or a lost pack, is refused before anything is prefilled
            _ = self._store.embedder, self._store.codec_pack
        thread = threading.Thread(target=self._writer.run, name="kvps-ingest-writer", daemon=True)
        thread.start()
        try:
            try:
                for item in documents:
                    self._take(item)
                    self._writer.raise_failure()
            finally:
                self._flush()  # also where reading fails: what is prefilled is not lost
        finally:
            self._queue.put(None)
            thread.join()
        self._writer.raise_failure()
        report = self._report
        report.ratio = report.raw_bytes / report.stored_bytes if report.stored_bytes else None
        report.elapsed_ms = 1e3 * (time.perf_counter() - started)
        return report

    def _take(self, item: Document | Exception) -> None:
        self._seen += 1
        document_id = getattr(item, "id", None) or getattr(item, "document_id", "?")
        try:
            if isinstance(item, Exception):
                raise item
            self._ingest(self._once(checked_document(item)))
        except (DocumentError, ContextOverflowError) as error:  # any other error ends the run
            self._report.fail(str(document_id), getattr(error, "reason", str(error)))
        if self._progress:
            self._progress(IngestProgress(self._seen, self._report.tokens, str(document_id)))

    def _once(self, document: Document) -> Document:
        """Refuse a second document of one id: it would replace the first unseen."""
        if document.id in self._ids:
            raise DocumentError(document.id, "has the id of an earlier document of this ingest")
        self._ids.add(document.id)
        return document

    def _ingest(self, document: Document) -> None:
        is_update, known = self._known(document.id)
        content, metadata = content_hash(document), metadata_hash(document)
        if (
            known is not None
            and known.content_hash == content
            and has_all_parts(self._store.packets, self._namespace, known)
        ):
            self._keep(document, known, metadata)
            return
        segments = self._store.segments(document)
        keys = [self._store.prefiller.segment_key(segment.token_ids) for segment in segments]
        for segment, key in zip(segments, keys, strict=True):
            self._refuse_collision(document.id, segment, key)
        for segment, key in zip(segments, keys, strict=True):
            self._need(segment, key)
        self._report.tokens += sum(len(segment.token_ids) for segment in segments)
        self._group.append(_Prepared(document, segments, keys, is_update))
        if self._pending_tokens >= _GROUP_TOKENS or len(self._group) >= _GROUP_DOCUMENTS:
            self._flush()

    def _known(self, document_id: str) -> tuple[bool, DocumentManifest | None]:
        """Return whether the document is there, and its manifest if that can be read."""
        try:
            return True, self._store.packets.get_document(self._namespace, document_id)
        except NotFoundError:
            return False, None
        except CodecError:  # a damaged row: the document in hand takes its place
            return True, None

    def _keep(self, document: Document, known: DocumentManifest, metadata: str) -> None:
        """Keep the packets of unchanged content; metadata alone may be new."""
        if known.metadata_hash == metadata:
            self._report.documents.unchanged += 1
        else:
            self._report.documents.updated += 1
            if not self._dry_run:
                self._store.packets.update_metadata(
                    self._namespace, document.id, document.metadata, metadata
                )
        self._report.packets.reused += len(known.packet_keys)

    def _need(self, segment: Segment, key: str) -> None:
        """Prefill a segment unless its packet is stored or under way."""
        packets = self._store.packets
        if key in self._under_way or is_there(packets, self._namespace, key, segment.token_ids):
            self._report.packets.reused += 1
            return
        self._under_way[key] = segment.token_ids
        if self._dry_run:
            self._report.packets.added += 1
            return
        body = self._bodies.get(key) or self._store.prefiller.segment(segment.token_ids)
        importance = wanted_importance(self._store, body, segment.token_ids)
        self._pending.append(PendingPacket(key, segment.token_ids, body, importance))
        self._pending_tokens += len(segment.token_ids)
        if self._pending_tokens >= _GROUP_TOKENS:
            self._hand_over_packets()  # a long document: do not wait for its end

    def _refuse_collision(self, document_id: str, segment: Segment, key: str) -> None:
        """Raise DocumentError where the key stands for other tokens: never a hit, never a loss."""
        known = self._under_way.get(key)
        if known is None:
            with contextlib.suppress(NotFoundError, CodecError):
                known = self._store.packets.get_manifest(self._namespace, key).token_ids
        if known not in (None, segment.token_ids):
            raise DocumentError(document_id, f"packet {key} stands for other tokens already")

    def _hand_over_packets(self) -> None:
        if self._pending:
            self._writer.put(StageWork(self._pending))
        self._pending, self._pending_tokens = [], 0

    def _flush(self) -> None:
        """Hand the group's packets and documents to the writer."""
        group, self._group = self._group, []
        if self._dry_run:
            for prepared in group:
                self._count(prepared)
            return
        self._hand_over_packets()
        if not group:
            return
        texts = [segment.text for prepared in group for segment in prepared.segments]
        vectors = iter(self._store.embedder.embed(texts))
        commits = []
        for prepared in group:
            rows = [next(vectors).astype("<f4").tobytes() for _ in prepared.segments]
            commits.append((_manifest(prepared), rows))
        token_ids = {
            key: segment.token_ids
            for prepared in group
            for key, segment in zip(prepared.keys, prepared.segments, strict=True)
        }
        self._writer.put(CommitWork(commits, [p.is_update for p in group], token_ids))

    def _count(self, prepared: _Prepared) -> None:
        if prepared.is_update:
            self._report.documents.updated += 1
        else:
            self._report.documents.added += 1


def _manifest(prepared: _Prepared) -> DocumentManifest:
    document = prepared.document
    return DocumentManifest(
        id=document.id,
        content_hash=content_hash(document),
        metadata_hash=metadata_hash(document),
        metadata=document.metadata,
        segments=tuple(
            SegmentRef(key, len(segment.token_ids), segment.start_char, segment.end_char)
            for segment, key in zip(prepared.segments, prepared.keys, strict=True)
        ),
        text=document.text,
    )
