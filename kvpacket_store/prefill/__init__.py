"""Token ids → K and V of `[header | segment | trailer]`, canonical."""

from kvpacket_store.prefill.prefiller import (
    PACKET_FORMAT_VERSION,
    PREFILL_RECIPE,
    BodyKV,
    Prefiller,
)

__all__ = ["PACKET_FORMAT_VERSION", "PREFILL_RECIPE", "BodyKV", "Prefiller"]
