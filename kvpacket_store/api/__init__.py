"""The façade: `Store` and `Engine`, and what they report."""

from kvpacket_store.api.answer import Answer, Fallback, Piece, Usage, UsedDocument, UsedPacket
from kvpacket_store.api.engine import Engine
from kvpacket_store.api.ingest import IngestProgress
from kvpacket_store.api.reports import DocumentEntry, IngestReport, Listing, StatsReport
from kvpacket_store.api.store import DEFAULT_NAMESPACE, Store

__all__ = [
    "DEFAULT_NAMESPACE",
    "Answer",
    "DocumentEntry",
    "Engine",
    "Fallback",
    "IngestProgress",
    "IngestReport",
    "Listing",
    "Piece",
    "StatsReport",
    "Store",
    "Usage",
    "UsedDocument",
    "UsedPacket",
]
