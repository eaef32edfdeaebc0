"""How near answers from packets are to what the model would have said without: measured live.

A share of requests is run again over a joint prefill of the same token ids, no packet and no
adapter: over the answer's tokens, how often would it have chosen the same, and how far apart are
the two distributions.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.audit_totals import (
    AUDIT_FILE,
    AuditTotals,
    append_audit,
    checked_share,
)
from kvpacket_store.errors import KVPacketError

if TYPE_CHECKING:
    from kvpacket_store.api.assembly import Assembler
    from kvpacket_store.api.begun import Begun
    from kvpacket_store.models import Model

__all__ = ["Auditor"]


class Auditor:
    """Audits every n-th request.

    Parameters
    ----------
    share : float
        Of requests, 0 to 1.
    folder : Path or None
        Of the store, where totals are added up; None keeps them in memory alone.

    Raises
    ------
    UsageError
        The share is none.

    Examples
    --------
    >>> auditor = Auditor(0.25, None)
    >>> [auditor.is_due() for _ in range(8)].count(True)
    2
    """

    def __init__(self, share: float, folder: Path | None) -> None:
        self.totals = AuditTotals()
        self._share = checked_share(share)
        self._folder = folder
        self._due = 0.0
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        """Whether this request is one to audit."""
        with self._lock:
            self._due += self._share
            if self._due < 1:
                return False
            self._due -= 1
            return True

    def audit(self, model: Model, assembler: Assembler, begun: Begun) -> None:
        """Measure one answered request and add it up; one that has no K and V now is left out."""
        answer, assembled = begun.answering.token_ids, begun.assembled
        if not answer or not begun.has_exact or not assembled.selected:
            return
        with contextlib.suppress(KVPacketError):  # a document may be gone by now
            joint = assembler.joint(assembled.query, assembled.selected, max_new_tokens=len(answer))
            theirs = model.forward(
                (*joint.question_ids, *answer[:-1]), joint.cache, keep_logits=len(answer)
            )
            begun.exact.set_length(assembled.plan.question_start)
            ours = model.forward(
                (*assembled.question_ids, *answer[:-1]), begun.exact, keep_logits=len(answer)
            )
            self._add(_compared(theirs, ours, answer))

    def _add(self, found: AuditTotals) -> None:
        with self._lock:
            self.totals += found
            if self._folder is not None:
                append_audit(self._folder / AUDIT_FILE, found)


def _compared(joint: torch.Tensor, packets: torch.Tensor, answer: list[int]) -> AuditTotals:
    """Compare logits ``[n, vocab]`` over an answer of n tokens."""
    p, q = (torch.log_softmax(logits.double(), dim=-1) for logits in (joint, packets))
    kl = (p.exp() * (p - q)).sum(-1).clamp(min=0)
    agreed = int((joint.argmax(-1) == packets.argmax(-1)).sum())
    return AuditTotals(1, len(answer), agreed, float(kl.sum()))
