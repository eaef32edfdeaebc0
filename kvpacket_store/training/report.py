"""What a training run found, for people, programs and the adapter's own file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kvpacket_store import __version__
from kvpacket_store.types import Report

__all__ = ["TrainingReport", "adapter_about"]


@dataclass(frozen=True, slots=True)
class TrainingReport(Report):
    """A trained adapter and the way to it.

    KLs are to the teacher on held-out samples, in nats an answer token: without soft tokens
    (``kl_naive``), with those that it began with (``kl_before``), with the best (``kl_after``).
    ``gap_closed`` is the share of ``kl_naive`` that the best ones take away. ``ended`` says why
    training ended: ``steps``, ``minutes``, ``patience``, ``interrupted`` or ``failed``.
    """

    adapter: str
    digest: str
    tokens: int
    model: str
    dtype: str
    ended: str
    steps: int
    best_step: int
    seconds: float
    kl_naive: float
    kl_before: float
    kl_after: float
    gap_closed: float
    history: list[dict[str, float]]
    sources: list[dict[str, Any]]
    options: dict[str, Any]
    failures: list[str]


def adapter_about(report: TrainingReport, fingerprint: dict[str, str]) -> dict[str, str]:
    """Return the metadata of the adapter's file."""
    return {
        "made_by": f"kvpacket-store {__version__}",
        "model": report.model,
        "model_fingerprint": json.dumps(fingerprint),
        "compute_dtype": report.dtype,
        "sources": json.dumps(report.sources),
        "options": json.dumps(report.options),
        "ended": report.ended,
        "steps": str(report.steps),
        "best_step": str(report.best_step),
        "kl_naive": f"{report.kl_naive:.5f}",
        "kl_before": f"{report.kl_before:.5f}",
        "kl_after": f"{report.kl_after:.5f}",
        "gap_closed": f"{report.gap_closed:.4f}",
    }
