"""What steps cost on this machine, as ``kvps bench calibrate`` measured it: a file a model."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.processor import processor_name
from kvpacket_store.durable import written_whole
from kvpacket_store.generate import Costs
from kvpacket_store.models import cache_dir
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.models import Model

__all__ = ["MeasuredCosts", "costs_path", "read_costs", "write_costs"]

_VERSION = 2  # 1: of other kernels


@dataclass(frozen=True, slots=True)
class MeasuredCosts(Report):
    """Parts of a forward's time, ms.

    Parameters
    ----------
    weights_ms : float
        Whatever the context: weights are read, and one row goes through them.
    slot_ms : float
        A slot that the row attends to.
    row_ms : float
        A further row through the weights.
    row_slot_ms : float
        A further row and a slot.

    Examples
    --------
    >>> measured = MeasuredCosts(20.0, 0.005, 2.0, 0.001)
    >>> measured.step_ms(4000), measured.step_ms(1000, rows=2)
    (40.0, 28.0)
    >>> measured.costs(4000, 1000)
    Costs(draft=0.625, verify=1.0, row=0.15, shared=0.45, draft_shared=0.45)
    """

    weights_ms: float
    slot_ms: float
    row_ms: float
    row_slot_ms: float

    def __post_init__(self) -> None:
        parts = (self.weights_ms, self.slot_ms, self.row_ms, self.row_slot_ms)
        if not all(map(math.isfinite, parts)) or min(parts) < 0 or not self.weights_ms:
            raise ValueError("costs are finite and not negative, and weights are not free")

    def step_ms(self, slots: int, rows: int = 1) -> float:
        """Return what a forward of so many rows over so many slots takes."""
        further = (rows - 1) * (self.row_ms + self.row_slot_ms * slots)
        return self.weights_ms + self.slot_ms * slots + further

    def costs(self, prompt_slots: int, draft_slots: int) -> Costs:
        """Return the same in plain steps over a prompt."""
        return self.costs_with(self, prompt_slots, draft_slots)

    def costs_with(self, draft: MeasuredCosts, prompt_slots: int, draft_slots: int) -> Costs:
        """Return the same for drafts of another model, with costs of its own."""
        plain = self.step_ms(prompt_slots)
        return Costs(
            draft=draft.step_ms(draft_slots) / plain,
            verify=1.0,
            row=(self.step_ms(prompt_slots, rows=2) - plain) / plain,
            shared=self.shared_ms / plain,
            draft_shared=draft.shared_ms / plain,
        )

    @property
    def shared_ms(self) -> float:
        """What all requests of a forward pay once: weights are read, and nothing is computed."""
        return max(self.weights_ms - self.row_ms, 0.0)


def costs_path(model: Model) -> Path:
    """Return where the costs of a model on this machine, with as many threads, are kept."""
    place = (processor_name(), os.cpu_count(), torch.get_num_threads(), str(model.device))
    identity = json.dumps([model.fingerprint.weights, *place])
    return cache_dir() / "costs" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def read_costs(model: Model) -> MeasuredCosts | None:
    """Return what was measured; None where nothing was, or where the file cannot be read."""
    return _read(costs_path(model))


def write_costs(model: Model, measured: MeasuredCosts) -> Path:
    """Keep what was measured; return where.

    Raises
    ------
    OSError
        The folder cannot be written to.
    """
    path = costs_path(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as scratch:
        scratch.write_text(json.dumps({"version": _VERSION, **measured.to_dict()}) + "\n")
    _read.cache_clear()
    return path


@functools.lru_cache(maxsize=16)
def _read(path: Path) -> MeasuredCosts | None:
    try:
        found = json.loads(path.read_text())
        if found.pop("version") != _VERSION:
            return None
        return MeasuredCosts(**found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
