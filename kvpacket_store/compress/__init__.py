"""Draft views of a prompt's K and V: fewer slots, fewer bits, or both. Drafts may be wrong."""

from kvpacket_store.compress.importance import (
    importance_bytes,
    importance_from,
    slot_importance,
)
from kvpacket_store.compress.importance_map import ImportanceMap
from kvpacket_store.compress.map_files import load_map, save_map, shipped_map
from kvpacket_store.compress.names import (
    compressor_names,
    parse_compressor,
    takes_importance,
    takes_map,
)
from kvpacket_store.compress.plan import Compressor, DraftView, Plan
from kvpacket_store.compress.prompt import LayerKV, PromptKV, Rope
from kvpacket_store.compress.rope import HalfSplitRope
from kvpacket_store.compress.views import DenseView

__all__ = [
    "Compressor",
    "DenseView",
    "DraftView",
    "HalfSplitRope",
    "ImportanceMap",
    "LayerKV",
    "Plan",
    "PromptKV",
    "Rope",
    "compressor_names",
    "importance_bytes",
    "importance_from",
    "load_map",
    "parse_compressor",
    "save_map",
    "shipped_map",
    "slot_importance",
    "takes_importance",
    "takes_map",
]
