"""The façade: `Store` and `Engine`, and what they report.

Names load when they are first used: `Engine` brings torch, `Store` does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kvpacket_store.api.answer import Answer, Fallback, Piece, Usage, UsedDocument, UsedPacket
from kvpacket_store.api.reports import DocumentEntry, IngestReport, Listing, StatsReport
from kvpacket_store.api.store import DEFAULT_NAMESPACE, Store

if TYPE_CHECKING:
    from kvpacket_store.api.engine import Engine
    from kvpacket_store.api.ingest import IngestProgress

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

_HOMES = {"Engine": "kvpacket_store.api.engine", "IngestProgress": "kvpacket_store.api.ingest"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
