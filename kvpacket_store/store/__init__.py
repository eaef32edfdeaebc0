"""Packets, documents and embeddings on disk: bytes in, the same bytes out.

Two storeys. ``store.py`` and the shelves are what others call; ``writer.py`` is the one way in
which they write, evicting at the byte cap (``eviction.py``). ``documents.py``, ``packets.py``,
``packet_copies.py``, ``embeddings.py``, ``namespaces.py``, ``accounts.py``, ``usage.py``,
``pins.py``, ``garbage.py``, ``mending.py``, ``claims.py`` and ``check.py`` work inside a
transaction. Below them ``schema.py``
says where everything lies, ``numbers.py`` under which numbers, and ``rows.py`` how it is framed;
``environment.py``, ``handle.py``, ``database.py``, ``locks.py`` and ``registry.py`` keep LMDB safe,
``disk_use.py`` shares out the byte cap, and ``compaction.py`` writes the file anew.

This room knows no tensors and no models: a record is opaque.
"""

from kvpacket_store.store.manifests import DocumentManifest, DocumentWrite, SegmentRef
from kvpacket_store.store.meta import FORMAT_VERSION, StoreMeta
from kvpacket_store.store.packet_manifest import PacketManifest, PacketRecord, StoredPacket
from kvpacket_store.store.read_counts import BytesRead
from kvpacket_store.store.reports import Damage, DocumentPage, SpaceReport, StoreStats
from kvpacket_store.store.store import PacketStore
from kvpacket_store.store.usage import now_ms

__all__ = [
    "FORMAT_VERSION",
    "BytesRead",
    "Damage",
    "DocumentManifest",
    "DocumentPage",
    "DocumentWrite",
    "PacketManifest",
    "PacketRecord",
    "PacketStore",
    "SegmentRef",
    "SpaceReport",
    "StoreMeta",
    "StoreStats",
    "StoredPacket",
    "now_ms",
]
