"""Packets, documents and embeddings on disk: bytes in, the same bytes out.

Two storeys. ``store.py`` and the two shelves are what others call: each method is one transaction.
``documents.py``, ``packets.py``, ``embeddings.py``, ``namespaces.py``, ``accounts.py`` and
``check.py`` work inside a transaction. Below them ``schema.py`` says where everything lies and
``rows.py`` how it is framed; ``environment.py``, ``database.py`` and ``registry.py`` keep LMDB
safe.

This room knows no tensors and no models: a record is opaque.
"""

from kvpacket_store.store.manifests import (
    DocumentManifest,
    DocumentWrite,
    PacketManifest,
    PacketRecord,
    SegmentRef,
)
from kvpacket_store.store.meta import FORMAT_VERSION, StoreMeta
from kvpacket_store.store.reports import Damage, StoreStats
from kvpacket_store.store.store import PacketStore

__all__ = [
    "FORMAT_VERSION",
    "Damage",
    "DocumentManifest",
    "DocumentWrite",
    "PacketManifest",
    "PacketRecord",
    "PacketStore",
    "SegmentRef",
    "StoreMeta",
    "StoreStats",
]
