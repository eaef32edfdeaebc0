"""The learned header and trailer around every segment (KV Packet, arXiv:2604.13226)."""

from kvpacket_store.adapters.adapter import NO_ADAPTER_DIGEST, Adapter, answers_digest
from kvpacket_store.adapters.correction import DISTANCE_EDGES, REPEAT_KINDS, Correction
from kvpacket_store.adapters.files import adapter_metadata, load_adapter, save_adapter
from kvpacket_store.adapters.installed import shipped_adapter, shipped_report

__all__ = [
    "DISTANCE_EDGES",
    "NO_ADAPTER_DIGEST",
    "REPEAT_KINDS",
    "Adapter",
    "Correction",
    "adapter_metadata",
    "answers_digest",
    "load_adapter",
    "save_adapter",
    "shipped_adapter",
    "shipped_report",
]
