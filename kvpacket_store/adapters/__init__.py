"""The learned header and trailer around every segment (KV Packet, arXiv:2604.13226)."""

from kvpacket_store.adapters.adapter import NO_ADAPTER_DIGEST, Adapter
from kvpacket_store.adapters.files import adapter_metadata, load_adapter, save_adapter
from kvpacket_store.adapters.installed import shipped_adapter, shipped_report

__all__ = [
    "NO_ADAPTER_DIGEST",
    "Adapter",
    "adapter_metadata",
    "load_adapter",
    "save_adapter",
    "shipped_adapter",
    "shipped_report",
]
