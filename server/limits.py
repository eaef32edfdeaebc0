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
    ingest_documents, ingest_text_bytes : int
        Most documents, and most UTF-8 bytes of their texts together, of one ``POST /ingest``.
    running_generations, running_ingests : int
        Most of each kind that run at once. Generations share passes over the weights.
    waiting_generations, waiting_ingests : int
        How many more may wait for their turn; one more is answered 429 with ``Retry-After``.
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
    ingest_documents: int = 16
    ingest_text_bytes: int = 1 << 16
    running_generations: int = 8
    waiting_generations: int = 32
    running_ingests: int = 1
    waiting_ingests: int = 8
    waiting_reports: int = 8
    running_kv_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name.startswith("waiting") or name == "running_kv_bytes" else 1
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}; take at least {least}")
