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
        How many of each kind run at once.
    waiting_generations, waiting_ingests : int
        How many more may wait for their turn; one more is answered 503 with ``Retry-After``.

    Raises
    ------
    UsageError
        A bound is not positive.
    """

    body_bytes: int = 1 << 20
    ingest_documents: int = 16
    ingest_text_bytes: int = 1 << 16
    running_generations: int = 1
    waiting_generations: int = 32
    running_ingests: int = 1
    waiting_ingests: int = 8

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name.startswith("waiting") else 1
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"{name} is {value}; take at least {least}")
