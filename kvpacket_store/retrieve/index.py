"""Exact search over the embeddings of one namespace.

A namespace has an index of its own. Nothing here ever filters namespaces out of a shared one: a
wall that is a filter leaks with the first bug in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import UsageError
from kvpacket_store.retrieve.id_map import IdMap
from kvpacket_store.retrieve.source import EmbeddingSource
from kvpacket_store.retrieve.vectors import iter_blocks, unit_rows

__all__ = ["Hit", "PacketIndex"]

Vector: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.int64]

_SPARE_ROWS = 16
_RESCORE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Hit:
    """One segment that a search found.

    Parameters
    ----------
    document_id : str
        The document, as the caller named it.
    segment_index : int
        Place of the segment in the document, from 0.
    packet_key : str
        What the store files the packet under.
    score : float
        Cosine similarity, 1 for the same direction.
    """

    document_id: str
    segment_index: int
    packet_key: str
    score: float


class PacketIndex:
    """An immutable flat inner-product index with the segments its rows stand for.

    Immutable means that any number of threads may search it while its successor is being built.

    Parameters
    ----------
    faiss_index : faiss.IndexFlatIP
        Rows of unit length.
    ids : IdMap
        As many rows, in the same order.

    Examples
    --------
    >>> class Source:
    ...     def generation(self, namespace):
    ...         return 1
    ...     def iter_embeddings(self, namespace):
    ...         yield "a", 0, "k0", np.array([1, 0], "<f4").tobytes()
    ...         yield "b", 0, "k1", np.array([0, 1], "<f4").tobytes()
    >>> index = PacketIndex.build(Source(), "default", dimension=2)
    >>> index.search(np.array([0.6, 0.8], np.float32), top_k=1)[0].document_id
    'b'
    >>> index.search(np.array([0.6, 0.8], np.float32), 1, keep=lambda d: d == "a")[0].packet_key
    'k0'
    """

    def __init__(self, faiss_index: Any, ids: IdMap) -> None:
        self._faiss_index = faiss_index
        self._ids = ids

    @classmethod
    def build(cls, source: EmbeddingSource, namespace: str, dimension: int) -> PacketIndex:
        """Read every embedding of ``namespace`` into a new index.

        Raises
        ------
        ModelMismatchError
            An embedding does not have ``dimension`` values: another embedder made it. Open the
            store with that embedder, or ingest the document again.
        StoreCorruptError
            An embedding is not a unit vector of finite numbers. Ingest the document again.
        """
        import faiss

        faiss_index = faiss.IndexFlatIP(dimension)

        def rows() -> Iterator[tuple[str, int, str]]:
            for names, vectors in iter_blocks(source.iter_embeddings(namespace), dimension):
                faiss_index.add(vectors)
                yield from names

        return cls(faiss_index, IdMap.from_rows(rows()))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def dimension(self) -> int:
        """Values a vector."""
        return int(self._faiss_index.d)

    @property
    def faiss_index(self) -> Any:
        """The vectors, for a snapshot. Not to be changed."""
        return self._faiss_index

    @property
    def ids(self) -> IdMap:
        """The segments, row by row."""
        return self._ids

    def search(
        self, vector: Vector, top_k: int, keep: Callable[[str], bool] | None = None
    ) -> list[Hit]:
        """Return the ``top_k`` best segments, best first.

        Parameters
        ----------
        vector : float32 [dimension]
            Of unit length.
        top_k : int
            At least 1. More than there are segments is fine.
        keep : callable, optional
            Asked once for each document id *before* anything is ranked, so that the answer has
            ``top_k`` segments wherever that many are accepted.

        Returns
        -------
        list of Hit
            By score, then document id, then segment index: equal inputs give equal answers,
            whatever the order in which the documents came in.

        Raises
        ------
        UsageError
            ``top_k`` is below 1, or ``vector`` is not a unit vector of this dimension.
        """
        query = self._checked_query(vector)
        if top_k < 1:
            raise UsageError(f"top_k is {top_k}; ask for at least 1 segment")
        allowed = None if keep is None else self._ids.rows_where(keep)
        population = len(self) if allowed is None else int(np.count_nonzero(allowed))
        if population == 0:
            return []
        wanted = min(top_k, population)
        return self._ranked(query, self._candidates(query, wanted, population, allowed))[:wanted]

    def _checked_query(self, vector: Vector) -> Vector:
        query = np.ascontiguousarray(vector, dtype=np.float32)
        if query.shape != (self.dimension,):
            raise UsageError(
                f"the query vector has shape {query.shape}, the index ({self.dimension},); "
                "embed the question with the embedder that the documents were ingested with"
            )
        if not unit_rows(query[None])[0]:
            raise UsageError("the query vector is not of unit length; normalise it")
        return query

    def _candidates(
        self, query: Vector, wanted: int, population: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Rows:
        """Return rows that certainly include the best ``wanted``, ties at the edge included.

        faiss sums in single precision, in an order that depends on where a row lies: equal vectors
        can differ in the last bits, and which of them makes the cut is chance. So every row whose
        score is within the rounding error of the cut is a candidate.
        """
        import faiss

        params = None
        if allowed is not None:  # faiss's stubs have the C++ signatures of these two
            bits = np.packbits(allowed, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]
            params = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
        fetched = min(population, wanted + _SPARE_ROWS)
        scores, rows = self._faiss_index.search(query[None], fetched, params=params)
        floor = float(scores[0, wanted - 1]) - 4 * self.dimension * 2.0**-24
        if fetched < population and scores[0, -1] >= floor:
            _, _, found = self._faiss_index.range_search(query[None], floor, params=params)
            return np.asarray(found, dtype=np.int64)
        return np.asarray(rows[0], dtype=np.int64)

    def _ranked(self, query: Vector, rows: Rows) -> list[Hit]:
        """Score in double precision, each row by itself, and order the hits."""
        hits = []
        for start in range(0, len(rows), _RESCORE_ROWS):
            block = rows[start : start + _RESCORE_ROWS]
            vectors = self._faiss_index.reconstruct_batch(block).astype(np.float64)
            scores = (vectors * query).sum(axis=1)
            hits += [
                Hit(*self._ids.row(row), score)
                for row, score in zip(block.tolist(), scores.tolist(), strict=True)
            ]
        hits.sort(key=lambda hit: (-hit.score, hit.document_id, hit.segment_index, hit.packet_key))
        return hits
