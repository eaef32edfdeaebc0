"""What a draft step and a verification cost, in plain steps: what decides whether to draft."""

from __future__ import annotations

from dataclasses import replace

from kvpacket_store.api.measured_costs import MeasuredCosts, read_costs
from kvpacket_store.generate import Costs
from kvpacket_store.models import Model
from kvpacket_store.models.rows import LANES

__all__ = ["costs_of", "costs_of_model"]

# What a byte of a slot takes beside a byte of weights, and what a further row takes beside the
# first one, of weights and of slots: SmolLM2 on two cores, by the lanes of its row kernels (`kvps
# bench calibrate`; docs/lab-log.md, 2026-11-30). AVX2: 33.9 ms for 269 MB of weights, 2.5 ms for
# the 46 MB of 1,000 slots, 2.2 and 1.3 ms for a further row. AVX-512: 9.2 and 1.05 ms, and 0.73 and
# 0.23 ms beside seven others; the first three rows of one request alone are nearly free.
_ROW_KERNELS = {8: (0.43, 0.065, 0.52), 16: (0.67, 0.08, 0.22)}
_OTHERS = (1.0, 0.1, 0.2)  # bound by reading


def costs_of(model: Model, prompt_slots: int, draft_slots: int) -> Costs:
    """Return the costs of drafting on so many slots of a prompt.

    Slots that are held in fewer bytes count as so many fewer. The costs are those that
    ``kvps bench calibrate`` measured here, else in proportion to bytes.

    Examples
    --------
    Drafting on a quarter of a prompt, SmolLM2::

        costs_of(model, 7500, 1875)  # → draft 0.73
    """
    return costs_of_model(model, model, prompt_slots, draft_slots)


def costs_of_model(model: Model, draft: Model, prompt_slots: int, draft_slots: int) -> Costs:
    """Return the costs of drafting with another model on so many slots of its own.

    Measured where both models were, else in proportion to bytes. Reading the prompt is not in them.
    """
    measured, theirs = read_costs(model), read_costs(draft)
    if measured is None or theirs is None:
        measured, theirs = _by_bytes(model), _by_bytes(draft)
    costs = measured.costs_with(theirs, prompt_slots, draft_slots)
    return replace(  # elsewhere requests run one after the other, and share nothing
        costs,
        shared=costs.shared if model.rows_are_alike else 0.0,
        draft_shared=costs.draft_shared if draft.rows_are_alike else 0.0,
    )


def _by_bytes(model: Model) -> MeasuredCosts:
    """Return what a step's parts are in proportion to: times of no unit."""
    weights = sum(p.numel() for p in model.hf.parameters()) * model.stored_itemsize
    slot_byte, row_of_weights, row_of_slots = (
        _ROW_KERNELS[LANES] if model.rows_are_alike else _OTHERS
    )
    slot = slot_byte * model.cache_bytes(1)
    return MeasuredCosts(
        weights_ms=weights,
        slot_ms=slot,
        row_ms=row_of_weights * weights,
        row_slot_ms=row_of_slots * slot,
    )
