"""What audits added up to, and where a store keeps it."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from kvpacket_store.errors import UsageError
from kvpacket_store.types import Report

__all__ = ["AUDIT_FILE", "AuditTotals", "append_audit", "checked_share", "read_audit"]

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


def checked_share(share: float) -> float:
    """Return the share of requests to audit.

    Raises
    ------
    UsageError
        It is none.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"audit is {share}; it is a share of requests, 0 to 1")
    return share


def read_audit(folder: Path) -> AuditTotals:
    """Return the totals of a store; unreadable lines count nothing."""
    total = AuditTotals()
    with contextlib.suppress(OSError):
        for line in (folder / AUDIT_FILE).read_text("utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                total += AuditTotals(**json.loads(line))
    return total


def append_audit(path: Path, found: AuditTotals) -> None:
    """Add a line; measurements may be lost, requests not, so errors of the disk are let go."""
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size > _MOST_FILE_BYTES:
            summed = path.with_suffix(".tmp")
            summed.write_text(json.dumps(read_audit(path.parent).to_dict()) + "\n", "utf-8")
            summed.replace(path)
        line = json.dumps(found.to_dict()) + "\n"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "w") as file:
            file.write(line)
