"""What ingest, listing and statistics report; the same fields as the commands' JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.types import Report

__all__ = [
    "DocumentCounts",
    "DocumentEntry",
    "IngestFailure",
    "IngestReport",
    "Listing",
    "PacketCounts",
    "PacketEntry",
    "StatsReport",
]


@dataclass(slots=True)
class DocumentCounts(Report):
    """Documents of an ingest, by outcome."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    failed: int = 0


@dataclass(slots=True)
class PacketCounts(Report):
    """Packets that an ingest prefilled, and those that it found."""

    added: int = 0
    reused: int = 0


@dataclass(frozen=True, slots=True)
class IngestFailure(Report):
    """A document that was not ingested, and why."""

    id: str
    error: str


@dataclass(slots=True)
class IngestReport(Report):
    """Outcome of an ingest. ``tokens`` are those of added and updated documents."""

    documents: DocumentCounts = field(default_factory=DocumentCounts)
    packets: PacketCounts = field(default_factory=PacketCounts)
    tokens: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    ratio: float | None = None
    elapsed_ms: float = 0.0
    errors: list[IngestFailure] = field(default_factory=list)
    dry_run: bool = False

    def fail(self, document_id: str, reason: str) -> None:
        """Count a failed document."""
        self.documents.failed += 1
        self.errors.append(IngestFailure(document_id, reason))


@dataclass(frozen=True, slots=True)
class PacketEntry(Report):
    """A packet of a document; ``tokens`` are its segment's."""

    packet_key: str
    tokens: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class DocumentEntry(Report):
    """A document as listed."""

    id: str
    namespace: str
    tokens: int
    packets: list[PacketEntry]
    metadata: Mapping[str, Any]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Listing(Report):
    """A page of documents, ordered by id; ``next`` is None on the last.

    ``damaged`` are ids whose rows cannot be read: ingest these documents again.
    """

    documents: list[DocumentEntry]
    next: str | None
    damaged: list[str]


@dataclass(frozen=True, slots=True)
class StatsReport(Report):
    """Sizes. ``live_bytes``: records and manifests; ``pack_bytes``: codec packs of the store.

    ``bits_per_scalar`` of K, V and bases, and ``layers`` (the same by layer; bases are None where
    packets have one layer), are of ``sampled_packets``: all of a small store.
    ``evicted_packets`` have given way to others; ``packets`` and sizes are without them.
    """

    documents: int
    packets: int
    evicted_packets: int
    tokens: int
    raw_bytes: int
    live_bytes: int
    pack_bytes: int
    file_bytes: int
    ratio: float | None
    bits_per_scalar: dict[str, float | None]
    layers: list[dict[str, float | None]]
    sampled_packets: int
    namespaces: list[str]
    audit: dict[str, float] | None = None
