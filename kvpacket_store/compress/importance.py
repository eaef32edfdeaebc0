"""How much each slot of a packet is needed: computed once, for drafts that drop the others.

The packet's own text is run once more on top of it, after a request to repeat it. A slot matters as
much as the row that looks at it most: what no row needs to give the text back, no question needs
much either.

References
----------
Kim et al. 2025 (KVzip), arXiv:2505.23416, §3.
"""

from __future__ import annotations

import math

import torch

from kvpacket_store.compress.observed import observed_attention
from kvpacket_store.errors import CodecError
from kvpacket_store.models import Model, SlotCache, observing_queries
from kvpacket_store.types import TokenIds

__all__ = ["REPEAT_INSTRUCTION", "importance_bytes", "importance_from", "slot_importance"]

REPEAT_INSTRUCTION = "\n\nRepeat the previous context exactly.\n\n"
_STEPS = 8  # an octave: 9 % between neighbours, 2⁻³² at the least
_MOST_ROWS = 512  # of the text at once: float32 attention of 9 heads over 1,100 slots is 20 MB


def slot_importance(model: Model, packet: SlotCache, token_ids: TokenIds) -> torch.Tensor:
    """Return the largest attention that each slot gets while its text is repeated.

    Parameters
    ----------
    model : Model
        Whose K and V these are.
    packet : SlotCache
        The whole packet, alone, from position 0; it is read, not written.
    token_ids : sequence of int
        Of the segment.

    Returns
    -------
    torch.Tensor
        float32 ``[L, H, T]``, 0 to 1: the maximum over rows and over the query heads of a KV head.
    """
    num_slots = packet.length
    found = torch.zeros((*packet.k_slots.shape[:2], num_slots), device=model.device)
    asked = model.tokenizer.tokenize(REPEAT_INSTRUCTION)
    for start in range(0, len(token_ids), _MOST_ROWS):
        rows = (*asked, *token_ids[start : start + _MOST_ROWS])
        cache = model.new_cache(num_slots + len(rows))
        cache.write_rows(0, *packet.rows(0, num_slots))
        cache.set_length(num_slots)
        with observing_queries(len(rows)) as queries:
            model.forward(rows, cache)
        for layer, query in enumerate(queries):
            scaling = float(model.attentions[layer].scaling)
            attention = observed_attention(query, cache.k_slots[layer], scaling)
            most = attention[..., :num_slots].amax(dim=(1, 2))
            found[layer] = torch.maximum(found[layer], most)
    return found


def importance_bytes(scores: torch.Tensor) -> bytes:
    """Write scores ``[L, H, T]`` from 0 to 1 as a byte each: docs/format.md, Importance.

    Examples
    --------
    >>> list(importance_bytes(torch.tensor([[[1.0, 0.5, 0.0]]])))
    [255, 247, 0]
    """
    steps = (255 + _STEPS * scores.double().log2()).round().clamp(0, 255)
    return steps.to(torch.uint8).cpu().numpy().tobytes()


def importance_from(data: bytes, shape: tuple[int, int, int]) -> torch.Tensor:
    """Return float32 scores of ``shape``.

    Raises
    ------
    CodecError
        There are not as many; judge the packet anew.

    Examples
    --------
    >>> importance_from(bytes([255, 247, 0]), (1, 1, 3))
    tensor([[[1.0000e+00, 5.0000e-01, 2.5390e-10]]])
    """
    if len(data) != math.prod(shape):
        raise CodecError(
            f"importance of {len(data)} bytes is not that of {list(shape)} slots; judge them anew"
        )
    steps = torch.frombuffer(bytearray(data), dtype=torch.uint8).long()
    return torch.exp2((torch.arange(256) - 255) / _STEPS)[steps].view(shape)
