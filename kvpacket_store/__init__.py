"""Prefill every document once, offline; answer from packets.

The names below load what they need when they are first used: importing the package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kvpacket_store.errors import KVPacketError
from kvpacket_store.types import Document, Text

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.api import Answer, Engine, IngestReport, Piece, Store
    from kvpacket_store.packet import Packet

__all__ = [
    "Adapter",
    "Answer",
    "Document",
    "Engine",
    "IngestReport",
    "KVPacketError",
    "Packet",
    "Piece",
    "Store",
    "Text",
]

__version__ = "0.1.0"

_HOMES = {
    "Adapter": "kvpacket_store.adapters",
    "Answer": "kvpacket_store.api",
    "Engine": "kvpacket_store.api",
    "IngestReport": "kvpacket_store.api",
    "Packet": "kvpacket_store.packet",
    "Piece": "kvpacket_store.api",
    "Store": "kvpacket_store.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
