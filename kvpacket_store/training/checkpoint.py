"""A run between two steps, on disk: enough to go on as if nothing had happened.

Samples and their order follow from seed and step, so no state of a random generator is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kvpacket_store.durable import written_whole
from kvpacket_store.errors import StoreFullError, UsageError

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

_TENSORS = ("parameter", "exp_avg", "exp_avg_sq", "best")


@dataclass(slots=True)
class Checkpoint:
    """State after ``step`` steps.

    Parameters
    ----------
    step : int
        Steps done.
    parameter, exp_avg, exp_avg_sq : float32, all of one shape
        What is learned, and AdamW's two moments of it.
    best : float32
        What was learned when the held-out KL was lowest.
    history : list of dict
        ``step``, ``loss`` (of the steps since the one before), ``kl``, ``seconds``: one a look at
        the held-out samples.
    losses : list of float
        Of the steps since the last look.
    seconds : float
        Of training so far.
    about : dict
        What must be the same when the run goes on, and what was found at its start.
    """

    step: int
    parameter: torch.Tensor
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    best: torch.Tensor
    history: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    about: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(state: Checkpoint, path: Path) -> None:
    """Write a checkpoint, synced, whole or not at all.

    Raises
    ------
    StoreFullError
        It cannot be written; the one before is as it was.
    """
    told = {
        "step": state.step,
        "history": state.history,
        "losses": state.losses,
        "seconds": state.seconds,
        "about": state.about,
    }
    tensors = {name: getattr(state, name).detach().cpu().contiguous() for name in _TENSORS}
    try:
        with written_whole(path) as scratch:
            save_file(tensors, scratch, metadata={"state": json.dumps(told)})
    except (OSError, SafetensorError) as error:
        raise StoreFullError(
            f"the checkpoint of step {state.step} cannot be written to {path} ({error}); the one "
            "before is whole: make room, then go on with --resume"
        ) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    UsageError
        There is none, or it cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"there is no checkpoint at {path}; start without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            told = json.loads(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in _TENSORS}
        return Checkpoint(**tensors, **told)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is no checkpoint of this version ({error}); train into another folder"
        ) from error
