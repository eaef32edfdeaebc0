"""How near answers from packets are to what the model would have said without: measured live.

A share of requests is run again over a joint prefill of the same token ids, no packet and no
adapter: over the answer's tokens, how often would it have chosen the same, and how far apart are
the two distributions.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvpacket_store.errors import KVPacketError, UsageError
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.assembly import Assembler
    from kvpacket_store.api.begun import Begun
    from kvpacket_store.models import Model

__all__ = ["AUDIT_FILE", "AuditTotals", "Auditor", "read_audit"]

AUDIT_FILE = "audit.jsonl"
_MOST_FILE_BYTES = 1 << 20  # then its lines become one


@dataclass(frozen=True, slots=True)
class AuditTotals(Report):
    """Sums over audited requests.

    Parameters
    ----------
    requests, tokens : int
        Audited answers, and their tokens.
    agreed : int
        Tokens that a joint prefill would have chosen as well, greedily.
    kl_nats : float
        Sum over tokens of KL(joint prefill ‖ packets).
    """

    requests: int = 0
    tokens: int = 0
    agreed: int = 0
    kl_nats: float = 0.0

    def __add__(self, other: AuditTotals) -> AuditTotals:
        return AuditTotals(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.agreed + other.agreed,
            self.kl_nats + other.kl_nats,
        )

    def means(self) -> dict[str, float] | None:
        """Return what is reported, or None where nothing was audited.

        Examples
        --------
        >>> AuditTotals(requests=1, tokens=4, agreed=3, kl_nats=0.5).means()
        {'requests': 1, 'tokens': 4, 'agreement': 0.75, 'kl_nats': 0.125}
        """
        if not self.tokens:
            return None
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "agreement": self.agreed / self.tokens,
            "kl_nats": self.kl_nats / self.tokens,
        }


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
        if not 0 <= share <= 1:
            raise UsageError(f"audit is {share}; it is a share of requests, 0 to 1")
        self.totals = AuditTotals()
        self._share = share
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

    def audit(self, model: Model, assembler: Assembler, namespace: str, begun: Begun) -> None:
        """Measure one answered request and add it up; one that has no K and V now is left out."""
        answer, assembled = begun.answering.token_ids, begun.assembled
        if not answer or not begun.has_exact or not assembled.selected:
            return
        with contextlib.suppress(KVPacketError):  # a document may be gone by now
            joint = assembler.joint(
                namespace,
                assembled.selected,
                assembled.question,
                max_new_tokens=len(answer),
            )
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
                _append(self._folder / AUDIT_FILE, found)


def _compared(joint: torch.Tensor, packets: torch.Tensor, answer: list[int]) -> AuditTotals:
    """Compare logits ``[n, vocab]`` over an answer of n tokens."""
    p, q = (torch.log_softmax(logits.double(), dim=-1) for logits in (joint, packets))
    kl = (p.exp() * (p - q)).sum(-1).clamp(min=0)
    agreed = int((joint.argmax(-1) == packets.argmax(-1)).sum())
    return AuditTotals(1, len(answer), agreed, float(kl.sum()))


def read_audit(folder: Path) -> AuditTotals:
    """Return the totals of a store; unreadable lines count nothing."""
    total = AuditTotals()
    with contextlib.suppress(OSError):
        for line in (folder / AUDIT_FILE).read_text("utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                total += AuditTotals(**json.loads(line))
    return total


def _append(path: Path, found: AuditTotals) -> None:
    """Add a line; measurements may be lost, requests not, so errors of the disk are let go."""
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size > _MOST_FILE_BYTES:
            summed = path.with_suffix(".tmp")
            summed.write_text(json.dumps(read_audit(path.parent).to_dict()) + "\n", "utf-8")
            summed.replace(path)
        line = json.dumps(found.to_dict()) + "\n"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "w") as file:
            file.write(line)
