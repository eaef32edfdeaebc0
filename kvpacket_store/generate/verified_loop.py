"""Draft, verify, accept: what comes out is what the target alone would have given.

A draft proposes tokens after those that are final; one target forward over them says what the
target would have chosen at each; the longest equal beginning is accepted, and the target's own
choice after it. Draft and target choose with the same noise (``Sampler``), so this holds for
sampling as for greedy decoding. Source: VeriCache (arXiv:2605.17613) §4.1; aligned blocks and keyed
noise are ours.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from kvpacket_store.errors import CancelledError
from kvpacket_store.generate.blocks import AlignedBlocks
from kvpacket_store.generate.options import GenerationOptions
from kvpacket_store.generate.sampling import Sampler

__all__ = ["Draft", "VerifiedCounts", "verified_tokens"]


class Draft(Protocol):
    """Proposes what might come next. It may be wrong in any way: that costs time alone."""

    def propose(self, token_ids: Sequence[int], position: int, count: int) -> Sequence[int]:
        """Return up to ``count`` tokens after ``token_ids``.

        Parameters
        ----------
        token_ids : sequence of int
            Final tokens that were not handed over before; the last one stands at ``position``.
        position : int
            Slot and position of the last of them.
        count : int
            Most tokens that could be accepted.
        """
        ...


@dataclass(slots=True)
class VerifiedCounts:
    """What became of drafts.

    Parameters
    ----------
    accepted, rejected : int
        Draft tokens. Those behind a rejected one count as rejected.
    verifications : int
        Target forwards after the prompt's.
    """

    accepted: int = 0
    rejected: int = 0
    verifications: int = 0


def verified_tokens(
    target: AlignedBlocks,
    draft: Draft,
    logits: torch.Tensor,
    sampler: Sampler,
    options: GenerationOptions,
    *,
    eos_ids: frozenset[int],
    counts: VerifiedCounts,
    cancel: threading.Event | None = None,
) -> Iterator[int]:
    """Yield final token ids, exactly those of one-token decoding over the same blocks.

    Parameters
    ----------
    target : AlignedBlocks
        On the exact K and V.
    draft : Draft
        Asked once a round.
    logits : float [vocab]
        Of the prompt's last row.
    sampler, options
        How to choose, and when to end.
    eos_ids : frozenset of int
        Not yielded, unless ``options.ignore_eos``.
    counts : VerifiedCounts
        Added to.
    cancel : threading.Event, optional
        Checked before each round.

    Raises
    ------
    CancelledError
        ``cancel`` was set.
    """
    slot = target.first_slot
    ends = frozenset() if options.ignore_eos else eos_ids
    block: list[int] = []  # final tokens of the block that `slot` lies in
    fresh = [sampler.pick(logits, slot)]  # final, not yet shown to the draft
    left = options.max_new_tokens
    while True:
        for token_id in fresh:
            if token_id in ends:
                return
            yield token_id
            left -= 1
            if not left:
                return
        if cancel is not None and cancel.is_set():
            raise CancelledError("the request was cancelled")
        block += fresh
        slot += len(fresh)
        start = target.start_of(slot - 1)
        block = block[len(block) - (slot - start) :]
        room = min(start + target.block_rows - slot, left - 1)
        proposed = list(draft.propose(fresh, slot - 1, room))[:room] if room else []
        rows = target.run(start, [*block, *proposed])[len(block) - 1 :]
        counts.verifications += 1
        fresh = _accepted(rows, proposed, sampler, slot)
        counts.accepted += len(fresh) - 1
        counts.rejected += len(proposed) - len(fresh) + 1


def _accepted(
    rows: torch.Tensor, proposed: Sequence[int], sampler: Sampler, slot: int
) -> list[int]:
    """Return the target's own choices as far as the draft saw them coming, and one more."""
    chosen = [sampler.pick(rows[0], slot)]
    for index, token_id in enumerate(proposed):
        if token_id != chosen[-1]:
            break
        chosen.append(sampler.pick(rows[index + 1], slot + index + 1))
    return chosen
