"""Draft, verify, accept: what comes out is what the target alone would have given.

A draft proposes tokens after those that are final; one target forward over them says what the
target would have chosen at each; the longest equal beginning is accepted, and the target's own
choice after it. Draft and target choose with the same noise (``Sampler``), so this holds for
sampling as for greedy decoding. Source: VeriCache (arXiv:2605.17613) §4.1; rows that are alike,
aligned blocks and keyed noise are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch

from kvpacket_store.generate.answering import (
    Answering,
    Decoding,
    Final,
    Provisional,
    Wait,
)
from kvpacket_store.generate.drafts import Draft
from kvpacket_store.generate.targets import Target, VerifiedCounts
from kvpacket_store.models import RowWork

__all__ = ["Arrival", "verified_decoding"]


class Arrival:
    """The exact K and V, which may be on their way.

    Parameters
    ----------
    target : callable
        Returns the target and the logits ``[vocab]`` of the prompt's last row; called once the
        exact K and V are here. It may run forwards.
    wait : Wait, optional
        Until they are here; without, they are.
    """

    def __init__(
        self,
        target: Callable[[], Generator[RowWork | Wait, torch.Tensor, tuple[Target, torch.Tensor]]],
        wait: Wait | None = None,
    ) -> None:
        self.begin = target
        self.wait = wait

    @property
    def is_here(self) -> bool:
        """Whether a verification would not wait."""
        return self.wait is None or self.wait.is_over()
