"""How much one server takes on at once."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.errors import UsageError

__all__ = ["ServerLimits"]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of memory and work; what is beyond them is refused at the door.

    Parameters
    ----------
    body_bytes : int
        Longest request body.
    body_timeout_s : float
        How long a body may take to arrive.
    question_bytes : int
        Longest question in UTF-8, earlier turns included: all others wait while it is tokenized.
    max_new_tokens : int
        Most tokens that one answer may be asked to have.
    request_timeout_s : float
        How long an answer may take, waiting included; it is then stopped within a step.
    shutdown_s : float
        How long what runs may go on once the server is told to end.
    ingest_documents, ingest_text_bytes : int
        Most documents, and most UTF-8 bytes of their texts together, of one ``POST /ingest``.
    running_generations, running_ingests : int
        Most of each kind that run at once. Generations share passes over the weights.
    waiting_generations, waiting_ingests : int
        How many more may wait for their turn; one more is answered 429 with ``Retry-After``.
    waiting_generations_of_key, waiting_ingests_of_key : int
        The same for one key: it cannot fill the queue that others wait in.
    waiting_embeddings : int
        How many ``POST /v1/embeddings`` may wait for the one that is at it.
    waiting_reports : int
        How many ``GET /stats`` may wait for the one that reads the store.
    running_kv_bytes : int, optional
        Most that the K and V of running generations may take; the rest wait, and one always runs.

    Raises
    ------
    UsageError
        A bound is too small to be one.
    """

    body_bytes: int = 1 << 20
    body_timeout_s: float = 30.0
    question_bytes: int = 1 << 16
    max_new_tokens: int = 4096
    request_timeout_s: float = 600.0
    shutdown_s: float = 30.0
    ingest_documents: int = 16
    ingest_text_bytes: int = 1 << 16
    running_generations: int = 8
    waiting_generations: int = 32
    waiting_generations_of_key: int = 16
    running_ingests: int = 1
    waiting_ingests: int = 8
    waiting_ingests_of_key: int = 4
    waiting_embeddings: int = 8
    waiting_reports: int = 8
    running_kv_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value, least = getattr(self, name), _least(name)
            if value is not None and not value >= least:  # which NaN is not
                raise UsageError(f"{name} is {value}; take at least {least}")


def _least(name: str) -> float:
    if name.startswith("waiting") or name in {"running_kv_bytes", "shutdown_s"}:
        return 0
    return 0.001 if name.endswith("_s") else 1
