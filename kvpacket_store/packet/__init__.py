"""The packet: immutable K,V of ``[header | segment | trailer]``, and its identity."""

from .digest import kv_digest
from .identity import NO_ADAPTER, PacketIdentity, packet_key
from .packet import Packet

__all__ = ["NO_ADAPTER", "Packet", "PacketIdentity", "kv_digest", "packet_key"]
