"""Where embeddings come from: what this room asks of the store, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias

__all__ = ["EmbeddingRow", "EmbeddingSource"]

EmbeddingRow: TypeAlias = tuple[str, int, str, bytes]
"""``(document_id, segment_index, packet_key, embedding)``; the last as little-endian float32."""


class EmbeddingSource(Protocol):
    """The holder of all embeddings, by namespace."""

    def generation(self, namespace: str) -> int:
        """Return a number that changes with every change of the namespace, and never comes back.

        A snapshot is believed when its generation equals this one, so two different contents must
        never share a number: not after a restore from a backup, nor after lost power.
        """
        ...

    def iter_embeddings(self, namespace: str) -> Iterator[EmbeddingRow]:
        """Yield every segment of the namespace once, in any order, as of one moment.

        That moment is not before the last answer of :meth:`generation`.
        """
        ...
