"""One differentiable forward over packed rows: whoever sees whom is a mask, positions are given.

What adapters are trained with. The weights get no gradients; the input embeddings may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from kvpacket_store.models.model import Model

__all__ = ["PackedRows", "frozen", "packed_logits"]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Where packed rows stand, and what they see.

    Parameters
    ----------
    positions : int64 ``[n]``
        Sets each row's RoPE angle; several rows may share a position, where none sees the other.
    visible : bool ``[n, n]``
        True where a row (first axis) sees another. Sliding windows are applied on top of it.
    logit_rows : int64 ``[m]``
        The rows whose logits are wanted.
    """

    positions: torch.Tensor
    visible: torch.Tensor
    logit_rows: torch.Tensor


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Let no parameter of the model get a gradient for the time of the block."""
    wanted = [p for p in model.hf.parameters() if p.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


def packed_logits(
    model: Model, embeddings: torch.Tensor, rows: PackedRows, *, recompute: bool = False
) -> torch.Tensor:
    """Return logits ``[m, vocab]`` of ``rows.logit_rows``.

    Parameters
    ----------
    model : Model
        The caller has it to itself.
    embeddings : ``[n, hidden]``
        In the model's dtype; gradients flow back to it where it asks for them.
    rows : PackedRows
        Positions and mask.
    recompute : bool
        Keep each layer's input alone and run the layer again on the way back: a third more time,
        a fraction of the memory, the same gradients.
    """
    with _recomputing(model, recompute):
        output = model.hf(
            inputs_embeds=embeddings[None],
            attention_mask=_masks(model, rows),
            position_ids=rows.positions[None],
            use_cache=False,
            logits_to_keep=rows.logit_rows,
        )
    logits: torch.Tensor = output.logits[0]
    return logits


def _masks(model: Model, rows: PackedRows) -> Any:
    """Return one mask ``[1, 1, n, n]``, or one a layer type where the types differ."""
    windows = dict(
        zip(
            model.layer_types,
            (layer.sliding_window_tokens for layer in model.layout.layers),
            strict=True,
        )
    )
    if len(windows) == 1:
        return _windowed(rows, next(iter(windows.values())))
    return {kind: _windowed(rows, window) for kind, window in windows.items()}


def _windowed(rows: PackedRows, window: int | None) -> torch.Tensor:
    visible = rows.visible
    if window is not None:
        visible = visible & (rows.positions[:, None] - rows.positions[None] < window)
    return visible[None, None]


@contextmanager
def _recomputing(model: Model, wanted: bool) -> Iterator[None]:
    """Turn on transformers' checkpointing, which asks for layers in training mode.

    Only the layer itself is told so: its submodules, dropout among them, stay as they are.
    """
    if not wanted:
        yield
        return
    layers = list(model.hf.get_decoder().layers)
    try:
        for layer in layers:
            layer.training = layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = _checkpointed
        yield
    finally:
        for layer in layers:
            layer.training = layer.gradient_checkpointing = False


def _checkpointed(function: Any, *inputs: Any) -> Any:
    return checkpoint(function, *inputs, use_reentrant=False)
