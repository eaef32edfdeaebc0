"""The packet: immutable K,V of ``[header | segment | trailer]``, and its identity."""

from .digest import kv_digest
from .identity import NO_ADAPTER, PACKET_FORMAT_VERSION, PacketIdentity, packet_key
from .packet import Packet

__all__ = [
    "NO_ADAPTER",
    "PACKET_FORMAT_VERSION",
    "Packet",
    "PacketIdentity",
    "kv_digest",
    "packet_key",
]
