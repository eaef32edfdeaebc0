"""What a draft step and a verification cost, in plain steps: what decides whether to draft."""

from __future__ import annotations

from dataclasses import replace

from kvpacket_store.api.measured_costs import read_costs
from kvpacket_store.generate import Costs
from kvpacket_store.models import Model

__all__ = ["costs_of", "costs_of_model"]

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
    draft = _step_bytes(model, draft_slots) / _step_bytes(model, prompt_slots)
    return Costs(draft=draft, verify=1.0, row=_ROW)


def costs_of_model(model: Model, draft: Model, prompt_slots: int, draft_slots: int) -> Costs:
    """Return the costs of drafting with another model on so many slots of its own.

    Measured where both models were, else in proportion to bytes. Reading the prompt is not in them.
    """
    costs = costs_of(model, prompt_slots, prompt_slots)
    measured, theirs = read_costs(model), read_costs(draft)
    if measured is not None and theirs is not None:
        return replace(costs, draft=theirs.step_ms(draft_slots) / measured.step_ms(prompt_slots))
    return replace(costs, draft=_step_bytes(draft, draft_slots) / _step_bytes(model, prompt_slots))


def _step_bytes(model: Model, slots: int) -> int:
    """Return what a step reads: weights once, K and V once."""
    weights: int = sum(p.numel() for p in model.hf.parameters()) * model.stored_itemsize
    return weights + model.cache_bytes(slots)
