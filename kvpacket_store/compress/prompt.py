"""What a compressor is given: the K and V of an assembled prompt, and what helps to judge them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch

from kvpacket_store.errors import UsageError

__all__ = ["LayerKV", "PromptKV", "Rope", "take_slots"]


class Rope(Protocol):
    """A layer's rotary embedding in both directions, for compressors of keys before RoPE."""

    def remove(self, k: torch.Tensor, slots: torch.Tensor, layer: int) -> torch.Tensor:
        """Return keys ``[H, n, D]`` before RoPE; ``slots`` int64 ``[H, n]`` are their positions."""
        ...

    def apply(self, k: torch.Tensor, slots: torch.Tensor, layer: int) -> torch.Tensor:
        """Rotate keys ``[H, n, D]`` to ``slots`` int64 ``[H, n]``."""
        ...


def take_slots(rows: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Gather ``rows [..., T, D]`` at int64 ``slots [..., n]``: a shorter, contiguous tensor.

    Examples
    --------
    >>> take_slots(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[0, 2]])).tolist()
    [[[1.0], [3.0]]]
    """
    index = slots[..., None].expand(*slots.shape, rows.shape[-1])
    return rows.gather(-2, index)


@dataclass(frozen=True, slots=True)
class LayerKV:
    """One layer's rows, as a quantiser gets them.

    Parameters
    ----------
    k, v : float [H, n, D]
        ``k`` is rotated.
    kept : int64 [H, n] or None
        Their slots; None for 0 to n - 1.
    index : int
        Which layer.
    recent : int
        How many of the last rows are the question's.
    rope : Rope or None
        As in ``PromptKV``.
    """

    k: torch.Tensor
    v: torch.Tensor
    kept: torch.Tensor | None
    index: int
    recent: int
    rope: Rope | None

    @property
    def slots(self) -> torch.Tensor:
        """Where the rows lie in the prompt, int64 ``[H, n]``."""
        if self.kept is not None:
            return self.kept
        return torch.arange(self.k.shape[1], device=self.k.device).expand(self.k.shape[:2])


@dataclass(frozen=True, slots=True)
class PromptKV:
    """The exact K and V of a prompt, position = slot.

    Parameters
    ----------
    k, v : float [L, H, T, D]
        ``k`` is rotated, as it lies in slots. They are read, never written.
    scaling : float
        Factor of q·k in the model's attention.
    queries : float [L, Hq, Q, D], optional
        Rotated queries of the last Q rows of the prompt: the question's.
    rope : Rope, optional
        For compressors that work on keys before RoPE.
    importance : float [L, H, T], optional
        How much each slot is needed, larger is more; computed once at prefill.
    first, recent : int
        How many of the first and of the last slots are always kept: the preamble's, where
        attention sinks lie, and the question's.
    slots : int64 [L, H, T], optional
        Which slots of a longer prompt these are; None where they are all of them.

    Examples
    --------
    >>> k = torch.arange(6.0).view(1, 1, 6, 1)
    >>> prompt = PromptKV(k, k, scaling=1.0, first=1, recent=1)
    >>> prompt.num_slots
    6
    >>> prompt.narrowed(torch.tensor([[[0, 3, 5]]])).k.flatten().tolist()
    [0.0, 3.0, 5.0]
    """

    k: torch.Tensor
    v: torch.Tensor
    scaling: float
    queries: torch.Tensor | None = None
    rope: Rope | None = None
    importance: torch.Tensor | None = None
    first: int = 4
    recent: int = 0
    slots: torch.Tensor | None = None

    def __post_init__(self) -> None:
        layers, heads, tokens, dim = self.k.shape
        if self.v.shape != self.k.shape or not tokens:
            raise UsageError(
                f"k is {list(self.k.shape)} and v {list(self.v.shape)}; "
                "both are [L, H, T, D] of at least one slot"
            )
        if self.queries is not None:
            query_layers, query_heads, rows, query_dim = self.queries.shape
            if (query_layers, query_dim) != (layers, dim) or query_heads % heads or rows > tokens:
                raise UsageError(
                    f"queries are {list(self.queries.shape)}, k is {list(self.k.shape)}"
                )
        if self.importance is not None and self.importance.shape != (layers, heads, tokens):
            raise UsageError(
                f"importance is {list(self.importance.shape)}, k is {list(self.k.shape)}"
            )

    @property
    def num_slots(self) -> int:
        """Slots T."""
        return int(self.k.shape[2])

    def narrowed(self, positions: torch.Tensor) -> PromptKV:
        """Return the prompt of these slots alone, int64 ``[L, H, n]``."""
        importance = None if self.importance is None else self.importance.gather(-1, positions)
        queries = None if self.queries is None else self.queries[:, :, -positions.shape[-1] :]
        return replace(
            self,
            k=take_slots(self.k, positions),
            v=take_slots(self.v, positions),
            queries=queries,
            importance=importance,
            slots=positions if self.slots is None else self.slots.gather(-1, positions),
        )

    def layer(self, index: int, positions: torch.Tensor | None) -> LayerKV:
        """Return one layer's rows at ``positions [L, H, n]``, or all of them."""
        k, v = self.k[index], self.v[index]
        slots = None if self.slots is None else self.slots[index]
        if positions is not None:
            kept = positions[index]
            k, v = take_slots(k, kept), take_slots(v, kept)
            slots = kept if slots is None else slots.gather(-1, kept)
        return LayerKV(k, v, slots, index, self.recent, self.rope)
