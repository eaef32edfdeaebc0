"""One bulk ingest: what it is to file, how far it is, and how it ended."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kvpacket_store.api import IngestReport

__all__ = ["IngestJob", "JobState", "created_ms_of", "new_job", "with_report"]

JobState: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
_RANDOM_BYTES = 8
_MOST_ERRORS = 1000  # a job's row is written again after each of its chunks


@dataclass(slots=True, eq=False)
class IngestJob:
    """A job, as it is kept. A thread sets its fields while it runs, each as a whole.

    Parameters
    ----------
    id : str
        Later jobs have greater ones.
    namespace : str
        Whose; to all others it is not there.
    created_ms : int
        When it was taken, since 1970.
    total : int
        Documents to file.
    body_bytes : int
        That its documents take in the store until it has ended.
    state : JobState
        A job that a server was killed over is ``running`` until the next server takes it up.
    done : int
        Documents that were looked at, the failed ones included.
    report : mapping
        As ``kvps ingest --json``, of these.
    problem : mapping, optional
        Why it failed as a whole.
    """

    id: str
    namespace: str
    created_ms: int
    total: int
    body_bytes: int
    state: JobState = "queued"
    done: int = 0
    report: dict[str, Any] = field(default_factory=lambda: IngestReport().to_dict())
    problem: dict[str, Any] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more comes."""
        return self.state in {"done", "failed", "cancelled"}

    def to_row(self) -> dict[str, Any]:
        """Return what is kept."""
        return {
            "id": self.id,
            "namespace": self.namespace,
            "created_ms": self.created_ms,
            "total": self.total,
            "body_bytes": self.body_bytes,
            "state": self.state,
            "done": self.done,
            "report": self.report,
            "problem": self.problem,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what clients see."""
        return {
            "id": self.id,
            "state": self.state,
            "namespace": self.namespace,
            "created_ms": self.created_ms,
            "progress": {"done": self.done, "total": self.total},
            **self.report,
            "problem": self.problem,
        }


def new_job(namespace: str, total: int, body_bytes: int) -> IngestJob:
    """Return a job that nobody can guess the id of."""
    now_ms = time.time_ns() // 1_000_000
    job_id = f"{now_ms:012x}-{secrets.token_hex(_RANDOM_BYTES)}"
    return IngestJob(job_id, namespace, now_ms, total, body_bytes)


def created_ms_of(job_id: str) -> int:
    """Return when the job of this id was made; the id may have something behind it."""
    return int(job_id.partition("-")[0], 16)


def with_report(before: dict[str, Any], report: IngestReport) -> dict[str, Any]:
    """Return the report of two ingests together; of many errors the first thousand."""
    new = report.to_dict()
    joined: dict[str, Any] = {
        key: {part: before[key][part] + new[key][part] for part in new[key]}
        for key in ("documents", "packets")
    }
    sums = ("tokens", "raw_bytes", "stored_bytes", "elapsed_ms", "errors")
    joined |= {key: before[key] + new[key] for key in sums}
    stored_bytes = joined["stored_bytes"]
    ratio = joined["raw_bytes"] / stored_bytes if stored_bytes else None
    joined["errors"] = joined["errors"][:_MOST_ERRORS]
    return {**before, **joined, "ratio": ratio}
