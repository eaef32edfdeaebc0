"""What writing and importing a bundle report."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvpacket_store.types import Report

__all__ = ["BundleReport", "ImportFailure", "ImportReport"]


@dataclass(frozen=True, slots=True)
class BundleReport(Report):
    """What is in a bundle that was written.

    Parameters
    ----------
    documents, packets : int
        Packets whose records travel; one that several documents share counts once.
    bytes : int
        Of the file.
    missing_packets : int
        Packets that the store had lost, evicted or found damaged: their records do not travel, the
        texts do, and the token ids where they could be read.
    missing_embeddings : int
        Documents that travel without embeddings, because the store has not all of them, undamaged.
    codec_packs : int
        Codec packs that travel with the records that name them.
    missing_codec_packs : list of str
        Digests of those that the store has lost.
    """

    documents: int
    packets: int
    bytes: int
    missing_packets: int = 0
    missing_embeddings: int = 0
    codec_packs: int = 0
    missing_codec_packs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ImportFailure(Report):
    """A document that was not imported, and why."""

    id: str
    error: str


@dataclass(slots=True)
class ImportReport(Report):
    """Outcome of an import.

    Parameters
    ----------
    added, updated, unchanged : int
        Documents.
    packets_added, packets_reused : int
        Of added and updated documents: filed from the bundle, found in the store.
    missing_embeddings : int
        Documents that came without embeddings: search does not find them until they are ingested.
    errors : list of ImportFailure
        Documents that were left out.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    packets_added: int = 0
    packets_reused: int = 0
    missing_embeddings: int = 0
    errors: list[ImportFailure] = field(default_factory=list)
