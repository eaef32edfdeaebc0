"""Attention over slots: grouped heads, no copy of K and V, the mask made from slot numbers.

Registered with transformers under the name ``kvpacket``, so that every supported architecture runs
its own code around it. Rows are appended at the end of the slots, therefore row *i* of *Q* sees the
slots up to ``T - Q + i``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from kvpacket_store.models.attending import AttentionCall, attention_rule
from kvpacket_store.models.cancellation import raise_if_cancelled
from kvpacket_store.models.queries import observe_query

__all__ = [
    "ATTENTION_NAME",
    "grouped_attention",
    "register_attention",
    "single_row_attention",
    "slot_mask",
]

ATTENTION_NAME = "kvpacket"


def slot_mask(
    num_rows: int, num_slots: int, window: int | None, device: torch.device
) -> torch.Tensor | None:
    """Return bool ``[Q, T]``, true where a row may look, or None where every row sees every slot.

    Examples
    --------
    >>> slot_mask(2, 3, None, torch.device("cpu")).tolist()
    [[True, True, False], [True, True, True]]
    >>> slot_mask(1, 3, 2, torch.device("cpu")).tolist()
    [[False, True, True]]
    >>> slot_mask(1, 3, None, torch.device("cpu")) is None
    True
    """
    if window is not None and window >= num_slots:
        window = None
    if num_rows == 1 and window is None:
        return None
    row = torch.arange(num_slots - num_rows, num_slots, device=device)[:, None]
    slot = torch.arange(num_slots, device=device)[None]
    mask = slot <= row
    if window is not None:
        mask &= slot > row - window
    return mask


def _visible_part(
    k: torch.Tensor, v: torch.Tensor, num_rows: int, window: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave out the slots that no row of a sliding layer can see."""
    if window is None or k.shape[2] <= window + num_rows:
        return k, v
    first = k.shape[2] - num_rows - window + 1
    return k[:, :, first:], v[:, :, first:]


def single_row_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Attend with one row ``[Hq, D]`` to ``[H, T, D]``; returns ``[Hq, D]``.

    The query heads of a kv head become the rows of one query, so its K and V are read once and
    nothing is masked: 72 ms at 7,500 slots for the 30 layers of SmolLM2, where a matmul a kv head
    took 91 and the fused kernel a query head 78 (2 cores, AVX2, fp32).
    """
    heads, dim = q.shape
    rows = q.view(1, k.shape[0], -1, dim)
    mixed = functional.scaled_dot_product_attention(rows, k[None], v[None], scale=scaling)
    return mixed.reshape(heads, dim)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend with ``query [B, Hq, Q, D]`` to ``key, value [B, H, T, D]``; give ``[B, Q, Hq, D]``.

    Where slots are wider than what the model computes in, attention is computed in theirs.
    ``attention_mask`` is None (the mask follows from the slots) or bool/float ``[B, 1, Q, T]``,
    which is used as it is: tests and adapter training pass block masks. A rule in force
    (`attending`) takes the place of all this.
    """
    raise_if_cancelled()
    computed_in, query = query.dtype, query.to(key.dtype)
    observe_query(query)
    scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
    window = kwargs.get("sliding_window")
    rule = attention_rule()
    if rule is not None:
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        mixed = rule(AttentionCall(layer, query, key, value, scaling, window))
        return mixed.transpose(1, 2).to(computed_in), None
    rows = query.shape[2]
    if attention_mask is not None:
        if attention_mask.is_floating_point():
            attention_mask = attention_mask.to(query.dtype)
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2).to(computed_in), None
    key, value = _visible_part(key, value, rows, window)
    if rows == 1 and query.shape[0] == 1 and (window is None or window >= key.shape[2]):
        mixed = single_row_attention(query[0, :, 0], key[0], value[0], scaling)
        return mixed[None, None].to(computed_in), None
    # `is_causal` of the fused kernel is aligned to the first slot: right only without a past.
    square = rows == key.shape[2] and (window is None or window >= rows)
    out = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if square else slot_mask(rows, key.shape[2], window, query.device),
        is_causal=square,
        scale=scaling,
        enable_gqa=True,
    )
    return out.transpose(1, 2).to(computed_in), None


def register_attention() -> None:
    """Make ``attn_implementation="kvpacket"`` known to transformers (again is fine)."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, grouped_attention)
