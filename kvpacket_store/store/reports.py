"""What the store says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.types import Report

__all__ = ["Counters", "Damage", "DocumentPage", "SpaceReport", "StoreStats"]


@dataclass(slots=True)
class Counters(Report):
    """Sizes of a namespace, kept in the transaction that changes them."""

    documents: int = 0
    packets: int = 0
    evicted_packets: int = 0
    tokens: int = 0
    raw_bytes: int = 0
    live_bytes: int = 0

    def add(self, other: Counters, sign: int = 1) -> None:
        """Add ``other``, or take it away."""
        self.documents += sign * other.documents
        self.packets += sign * other.packets
        self.evicted_packets += sign * other.evicted_packets
        self.tokens += sign * other.tokens
        self.raw_bytes += sign * other.raw_bytes
        self.live_bytes += sign * other.live_bytes


@dataclass(frozen=True, slots=True)
class StoreStats(Report):
    """Sizes of a namespace or of the whole store.

    Parameters
    ----------
    documents, packets : int
        A packet that several documents share is counted once a namespace; one that is staged for
        a document still to come is counted too. Evicted ones are not among them.
    evicted_packets : int
        Those whose record gave way to others; their manifests remain.
    tokens : int
        Of the ``packets`` segments.
    raw_bytes : int
        Their K and V as floats. The whole store adds what it shares (header, preamble).
    live_bytes : int
        Records and manifests, of packets and of documents; of an evicted packet its manifest.
    file_bytes : int
        Blocks on disk of everything in the folder; the same for every namespace.
    readers : int
        Snapshots that are open now, in all processes; the same for every namespace.
    oldest_reader_txns : int
        How many commits the oldest of them is behind: while it stays, what was freed since then
        cannot be used again, and the file grows instead.
    """

    documents: int
    packets: int
    evicted_packets: int
    tokens: int
    raw_bytes: int
    live_bytes: int
    file_bytes: int
    readers: int
    oldest_reader_txns: int


@dataclass(frozen=True, slots=True)
class SpaceReport(Report):
    """What `gc` or `compact` has done.

    Parameters
    ----------
    before_bytes, after_bytes : int
        Live bytes where rows were deleted (`gc`), the folder's blocks where the file was written
        anew (`compact`).
    deleted_packets : int
        That no document referred to.
    evicted_packets : int
        Unused for longer than the store's time to live.
    deleted_rows : int
        That belonged to nothing.
    file_bytes : int
        The folder's blocks afterwards.
    """

    before_bytes: int
    after_bytes: int
    file_bytes: int
    deleted_packets: int = 0
    evicted_packets: int = 0
    deleted_rows: int = 0


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents in the order of their ids.

    Parameters
    ----------
    documents : tuple of DocumentManifest
        Those that can be read.
    following : str or None
        Where the next page begins; None after the last.
    damaged : tuple of (str, str)
        Namespace and id of those between them that cannot; ingest them again.
    """

    documents: tuple[DocumentManifest, ...]
    following: str | None
    damaged: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Damage(Report):
    """Something that does not hold.

    Parameters
    ----------
    packet_key : str or None
        None where it is not one packet's.
    document_ids : tuple of str
        Who is affected, where that is known.
    reason : str
        What was found.
    namespace : str or None
        Where; None for what belongs to the whole store.
    """

    packet_key: str | None
    document_ids: tuple[str, ...]
    reason: str
    namespace: str | None = None
