"""Which segment each row of an index stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["IdMap"]


@dataclass(frozen=True, slots=True)
class IdMap:
    """Row number → (document, segment, packet), held by column.

    Parameters
    ----------
    document_ids : tuple of str
        Every document once.
    document_of_row : int64 [n]
        Position in ``document_ids``.
    segment_indices : int64 [n]
        Place of the segment in its document.
    packet_keys : tuple of str
        One a row.

    Examples
    --------
    >>> ids = IdMap.from_rows([("a", 0, "k0"), ("a", 1, "k1"), ("b", 0, "k2")])
    >>> ids.document_ids, ids.row(1)
    (('a', 'b'), ('a', 1, 'k1'))
    >>> ids.rows_where(lambda document_id: document_id == "b")
    array([False, False,  True])
    """

    document_ids: tuple[str, ...]
    document_of_row: npt.NDArray[np.int64]
    segment_indices: npt.NDArray[np.int64]
    packet_keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.packet_keys)

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, int, str]]) -> IdMap:
        """Make the columns from ``(document_id, segment_index, packet_key)`` rows."""
        place: dict[str, int] = {}
        documents: list[int] = []
        segments: list[int] = []
        keys: list[str] = []
        for document_id, segment_index, packet_key in rows:
            documents.append(place.setdefault(document_id, len(place)))
            segments.append(segment_index)
            keys.append(packet_key)
        return cls(
            tuple(place),
            np.asarray(documents, dtype=np.int64),
            np.asarray(segments, dtype=np.int64),
            tuple(keys),
        )

    def row(self, row: int) -> tuple[str, int, str]:
        """Return ``(document_id, segment_index, packet_key)`` of one row."""
        document_id = self.document_ids[int(self.document_of_row[row])]
        return document_id, int(self.segment_indices[row]), self.packet_keys[row]

    def rows_where(self, keep: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return which rows belong to documents that ``keep`` accepts; it is asked once each.

        Returns
        -------
        bool [n]
        """
        accepted = np.fromiter(
            (bool(keep(document_id)) for document_id in self.document_ids),
            dtype=np.bool_,
            count=len(self.document_ids),
        )
        return accepted[self.document_of_row]

    def to_json(self) -> bytes:
        """Return the columns as ASCII JSON."""
        columns = {
            "document_ids": self.document_ids,
            "document_of_row": self.document_of_row.tolist(),
            "segment_indices": self.segment_indices.tolist(),
            "packet_keys": self.packet_keys,
        }
        return json.dumps(columns, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> IdMap:
        """Return what :meth:`to_json` wrote.

        Raises
        ------
        ValueError, KeyError, TypeError
            Something else wrote it: columns are missing, of another kind or of different lengths.
        """
        columns = json.loads(data)
        ids = cls(
            tuple(columns["document_ids"]),
            _column(columns["document_of_row"]),
            _column(columns["segment_indices"]),
            tuple(columns["packet_keys"]),
        )
        places, num_rows = ids.document_of_row, len(ids.packet_keys)
        if not len(places) == len(ids.segment_indices) == num_rows:
            raise ValueError("its columns have different lengths")
        if num_rows and not 0 <= places.min() <= places.max() < len(ids.document_ids):
            raise ValueError("a row is of no document")
        if not all(isinstance(name, str) for name in (*ids.document_ids, *ids.packet_keys)):
            raise TypeError("a document or packet is not named by a text")
        return ids


def _column(values: object) -> npt.NDArray[np.int64]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("a column of numbers is none")
    return np.asarray(values, dtype=np.int64)
