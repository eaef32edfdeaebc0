"""Plain decoding: one token a step on the exact K and V. The reference of every other mode."""

from __future__ import annotations

import torch

from kvpacket_store.generate.answering import Answering, Decoding, Final
from kvpacket_store.models import RowWork, SlotCache

__all__ = ["plain_decoding"]


def plain_decoding(answering: Answering, cache: SlotCache, logits: torch.Tensor) -> Decoding:
    """Give final tokens until the end of sequence, the limit, or cancellation.

    Parameters
    ----------
    answering : Answering
        The request.
    cache : SlotCache
        The exact K and V of the prompt, with room for the answer.
    logits : float [vocab]
        Of the prompt's last row.
    """
    while True:
        answering.raise_if_cancelled()
        token_id = answering.decide(logits).token_id
        if answering.ends_with(token_id):
            return
        answering.token_ids.append(token_id)
        yield Final(token_id)
        if not answering.left:
            return
        answering.raise_if_cancelled()
        logits = (yield RowWork(cache, (token_id,)))[-1]
