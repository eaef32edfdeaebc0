"""The seam to Hugging Face models: load, describe, capture, rotate."""

from kvpacket_store.models.attending import (
    AttentionCall,
    AttentionRule,
    attending,
    plain_attention,
)
from kvpacket_store.models.attention import slot_mask
from kvpacket_store.models.cancellation import cancellable, raise_if_cancelled
from kvpacket_store.models.dtypes import bits_to_tensor, kv_dtype_of, tensor_to_bits, torch_dtype_of
from kvpacket_store.models.generating import for_generate
from kvpacket_store.models.load import load_model
from kvpacket_store.models.model import Model
from kvpacket_store.models.packed import PackedRows, frozen, packed_logits
from kvpacket_store.models.presets import PRESETS, cache_dir
from kvpacket_store.models.prompt import DEFAULT_SYSTEM_PROMPT, PromptFormat
from kvpacket_store.models.queries import observing_queries
from kvpacket_store.models.recompute import recompute_rows, values_at_layer
from kvpacket_store.models.rotary import Rotary
from kvpacket_store.models.rows import CodedSlots, RowWork
from kvpacket_store.models.slots import SlotCache
from kvpacket_store.models.swap_cache import Arrival, SwapCache
from kvpacket_store.models.tokenizer import HFTokenizer
from kvpacket_store.models.transfer import Transfer, transfer_to
from kvpacket_store.models.view_cache import ViewCache

__all__ = [
    "DEFAULT_SYSTEM_PROMPT",
    "PRESETS",
    "Arrival",
    "AttentionCall",
    "AttentionRule",
    "CodedSlots",
    "HFTokenizer",
    "Model",
    "PackedRows",
    "PromptFormat",
    "Rotary",
    "RowWork",
    "SlotCache",
    "SwapCache",
    "Transfer",
    "ViewCache",
    "attending",
    "bits_to_tensor",
    "cache_dir",
    "cancellable",
    "for_generate",
    "frozen",
    "kv_dtype_of",
    "load_model",
    "observing_queries",
    "packed_logits",
    "plain_attention",
    "raise_if_cancelled",
    "recompute_rows",
    "slot_mask",
    "tensor_to_bits",
    "torch_dtype_of",
    "transfer_to",
    "values_at_layer",
]
