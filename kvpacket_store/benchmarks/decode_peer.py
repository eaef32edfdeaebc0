"""The peer of decoding figures: Hugging Face ``generate`` from the same K and V."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch
from transformers import DynamicCache

from kvpacket_store.benchmarks.baseline import Baseline
from kvpacket_store.models import SlotCache

__all__ = ["fastest_peer", "peer_ms_a_token", "too_large"]

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_MEMORY_SHARE = 4


def peer_ms_a_token(
    baseline: Baseline, ids: torch.Tensor, cache: SlotCache, new_tokens: int, *, batch: int = 1
) -> float:
    """Return the time of one step: (n + 1 tokens − 1 token) / n, greedy.

    Parameters
    ----------
    baseline : Baseline
        The stock model; it gets a ``DynamicCache`` with a copy of the slots in its dtype.
    ids : int64 [1, n]
        The prompt.
    cache : SlotCache
        Filled with all of the prompt but its last token.
    new_tokens : int
        n above.
    batch : int
        The same prompt so many times.
    """
    repeated = ids.expand(batch, -1).contiguous()

    def run(count: int) -> float:
        copied = _copied(cache, ids.shape[1] - 1, _DTYPES[baseline.dtype], batch)
        started = time.perf_counter()
        with torch.inference_mode():
            baseline.model.generate(
                repeated,
                attention_mask=torch.ones_like(repeated),
                cache=copied,
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
            )
        return 1e3 * (time.perf_counter() - started)

    return (run(new_tokens + 1) - run(1)) / new_tokens


def fastest_peer(baselines: Sequence[Baseline], ids: torch.Tensor, cache: SlotCache) -> Baseline:
    """Return the one that decodes two tokens soonest."""
    if len(baselines) == 1:
        return baselines[0]
    return min(baselines, key=lambda baseline: peer_ms_a_token(baseline, ids, cache, 2))


def too_large(cache: SlotCache, batch: int) -> str | None:
    """Return why a peer's cache, which is copied for every token, would not fit; None if it does.

    Examples
    --------
    >>> too_large(SlotCache((2, 1, 8, 4), torch.float32, torch.device("cpu")), 2) is None
    True
    """
    needed = 2 * batch * cache.resident_bytes
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed * _MEMORY_SHARE <= memory * 3:
        return None
    return f"its K and V, copied for every token, take {needed / 2**30:.1f} GiB"


def _copied(cache: SlotCache, filled: int, dtype: torch.dtype, batch: int) -> DynamicCache:
    copied = DynamicCache()
    for layer in range(len(cache.layers)):
        k, v = (
            slots[layer, :, :filled].to(dtype)[None].repeat(batch, 1, 1, 1)
            for slots in (cache.k_slots, cache.v_slots)
        )
        copied.update(k, v, layer)
    return copied
