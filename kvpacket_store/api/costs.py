"""What a draft step and a verification cost, in plain steps: what decides whether to draft."""

from __future__ import annotations

from kvpacket_store.api.measured_costs import read_costs
from kvpacket_store.generate import Costs
from kvpacket_store.models import Model

__all__ = ["costs_of"]

# Both are bound by reading: weights once a forward, K and V once. Measured with SmolLM2 on two
# AVX2 cores: 8 rows take 1.65 times one row at 1,000 slots and 2.1 times at 7,500.
_ROW = 0.13


def costs_of(model: Model, prompt_slots: int, draft_slots: int) -> Costs:
    """Return the costs of drafting on so many slots of a prompt.

    They are those that ``kvps bench calibrate`` measured here, else in proportion to bytes.

    Examples
    --------
    Drafting on a quarter of a prompt that is as large as the weights::

        costs_of(model, 4000, 1000)  # → draft 0.63
    """
    if (measured := read_costs(model)) is not None:
        return measured.costs(prompt_slots, draft_slots)
    weights = sum(p.numel() for p in model.hf.parameters()) * model.stored_itemsize
    slot = 2 * model.layout.num_layers * model.layout.num_kv_heads * model.layout.head_dim
    slot_bytes = slot * model.dtype.itemsize
    plain = weights + prompt_slots * slot_bytes
    return Costs(draft=(weights + draft_slots * slot_bytes) / plain, verify=1.0, row=_ROW)
