"""Token ids → K and V of `[header | segment | trailer]`, canonical."""

from kvpacket_store.prefill.preamble import preamble_adapter
from kvpacket_store.prefill.prefiller import (
    PREFILL_RECIPE,
    BodyKV,
    Prefiller,
)

__all__ = ["PREFILL_RECIPE", "BodyKV", "Prefiller", "preamble_adapter"]
