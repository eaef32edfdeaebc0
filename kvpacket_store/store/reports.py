"""What the store says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.types import Report

__all__ = ["Counters", "Damage", "StoreStats"]


@dataclass(slots=True)
class Counters(Report):
    """Sizes of a namespace, kept in the transaction that changes them."""

    documents: int = 0
    packets: int = 0
    tokens: int = 0
    raw_bytes: int = 0
    live_bytes: int = 0

    def add(self, other: Counters, sign: int = 1) -> None:
        """Add ``other``, or take it away."""
        self.documents += sign * other.documents
        self.packets += sign * other.packets
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
        a document still to come is counted too.
    tokens : int
        Of these packets' segments.
    raw_bytes : int
        Their K and V as floats. The whole store adds what it shares (header, preamble).
    live_bytes : int
        Records and manifests, of packets and of documents.
    file_bytes : int
        Blocks on disk of everything in the folder; the same for every namespace.
    """

    documents: int
    packets: int
    tokens: int
    raw_bytes: int
    live_bytes: int
    file_bytes: int


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
