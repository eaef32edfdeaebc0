"""Stored embeddings → blocks of float32, each row checked before it can rank anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import ModelMismatchError, StoreCorruptError
from kvpacket_store.retrieve.source import EmbeddingRow

__all__ = ["iter_blocks", "unit_rows"]

Names: TypeAlias = list[tuple[str, int, str]]
Matrix: TypeAlias = npt.NDArray[np.float32]

_BLOCK_ROWS = 4096
_UNIT_TOLERANCE = 1e-3


def unit_rows(matrix: Matrix) -> npt.NDArray[np.bool_]:
    """Return which rows are finite and of unit length, to a thousandth.

    Examples
    --------
    >>> unit_rows(np.array([[0.6, 0.8], [1, 1], [np.nan, 0]], np.float32))
    array([ True, False, False])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.square(matrix).sum(axis=1))
        return np.asarray(np.abs(norms - 1.0) <= _UNIT_TOLERANCE)


def iter_blocks(rows: Iterable[EmbeddingRow], dimension: int) -> Iterator[tuple[Names, Matrix]]:
    """Yield ``(names, float32 [n, dimension])`` for a few thousand rows at a time.

    Raises
    ------
    ModelMismatchError
        An embedding does not have ``dimension`` values.
    StoreCorruptError
        An embedding is not a unit vector of finite numbers.
    """
    remaining = iter(rows)
    while block := list(islice(remaining, _BLOCK_ROWS)):
        _check_sizes(block, dimension)
        matrix = np.frombuffer(b"".join(row[3] for row in block), dtype="<f4")
        matrix = matrix.reshape(len(block), dimension).astype(np.float32, copy=False)
        _check_lengths(block, matrix)
        yield [row[:3] for row in block], matrix


def _check_sizes(block: list[EmbeddingRow], dimension: int) -> None:
    for document_id, segment_index, _, embedding in block:
        if len(embedding) != 4 * dimension:
            raise ModelMismatchError(
                f"document {document_id!r}, segment {segment_index}: its embedding has "
                f"{len(embedding)} bytes, {dimension} values of this embedder have "
                f"{4 * dimension}; open the store with the embedder that it was made with, or "
                "ingest the document again"
            )


def _check_lengths(block: list[EmbeddingRow], matrix: Matrix) -> None:
    bad = np.flatnonzero(~unit_rows(matrix))
    if bad.size:
        document_id, segment_index, packet_key, _ = block[int(bad[0])]
        raise StoreCorruptError(
            f"document {document_id!r}, segment {segment_index} (packet {packet_key}): its "
            "embedding is not a unit vector of finite numbers; ingest the document again"
        )
