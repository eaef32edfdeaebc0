"""Jobs and their documents, kept in the store: a server that was killed goes on with them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from kvpacket_store.api import DEFAULT_NAMESPACE
from kvpacket_store.errors import DocumentError
from kvpacket_store.store import PacketStore
from kvpacket_store.types import Document

from .job import IngestJob, created_ms_of

__all__ = ["JobShelf", "chunks_of"]

_JOBS = "ingest jobs"
_CHUNKS = "ingest job documents"
_CHUNK_DOCUMENTS = 32
_CHUNK_BYTES = 1 << 18
_MOST_FILING_MS = 3_600_000


def chunks_of(documents: Sequence[Document]) -> list[bytes]:
    """Return documents as the values that they are kept in.

    An id that comes twice is an error at its second place: it would replace the first unseen.
    """
    chunks: list[bytes] = []
    rows: list[str] = []
    seen: set[str] = set()
    num_bytes = 0
    for document in documents:
        row: dict[str, Any] = {"id": document.id}
        if document.id in seen:
            row["error"] = "has the id of an earlier document of this ingest"
        else:
            row |= {"text": document.text, "metadata": dict(document.metadata)}
        seen.add(document.id)
        rows.append(json.dumps(row))
        num_bytes += len(rows[-1])
        if len(rows) == _CHUNK_DOCUMENTS or num_bytes >= _CHUNK_BYTES:
            chunks.append(_joined(rows))
            rows, num_bytes = [], 0
    return [*chunks, _joined(rows)] if rows else chunks


class JobShelf:
    """Rows of jobs, and the chunks of their documents. Its methods block."""

    def __init__(self, packets: PacketStore) -> None:
        self._packets = packets

    def jobs(self) -> Iterator[IngestJob]:
        """Yield all jobs, the oldest first; a row that is none is left out."""
        for _, value in self._packets.iter_values(DEFAULT_NAMESPACE, _JOBS):
            with suppress(ValueError, TypeError):
                yield IngestJob(**json.loads(value))

    def file(self, job: IngestJob, chunks: Sequence[bytes]) -> None:
        """Keep a new job: its documents first, so that what is a job is whole."""
        for number, chunk in enumerate(chunks):
            key = _chunk_key(job, number)
            self._packets.put_values(DEFAULT_NAMESPACE, _CHUNKS, {key: chunk})
        self.update(job)

    def update(self, job: IngestJob) -> None:
        """Keep how far a job is; without its documents once it is finished."""
        row = json.dumps(job.to_row()).encode()
        self._packets.put_values(DEFAULT_NAMESPACE, _JOBS, {job.id: row})
        if job.is_finished:
            self._delete_chunks(job)

    def forget(self, job: IngestJob) -> None:
        """Keep nothing of a job."""
        self._packets.delete_values(DEFAULT_NAMESPACE, _JOBS, [job.id])
        self._delete_chunks(job)

    def chunks(self, job: IngestJob) -> Iterator[list[Document | DocumentError]]:
        """Yield a job's documents that are not done; what is an error already stands as one."""
        seen = number = 0
        while seen < job.total:
            key = _chunk_key(job, number)
            value = self._packets.get_values(DEFAULT_NAMESPACE, _CHUNKS, [key]).get(key)
            if value is None:
                raise DocumentError(job.id, "the documents of the job are lost; send them again")
            rows = json.loads(value)
            number += 1
            left = rows[max(job.done - seen, 0) :]
            seen += len(rows)
            if left:
                yield [_document(row) for row in left]

    def delete_orphans(self, known: set[str]) -> None:
        """Delete documents whose job was never taken: the server was killed before.

        New ones stay: another server of this store may be about to take their job.
        """
        now_ms = time.time_ns() // 1_000_000
        values = self._packets.iter_values(DEFAULT_NAMESPACE, _CHUNKS)
        orphans = [
            key
            for key, _ in values
            if key.partition("/")[0] not in known and now_ms - created_ms_of(key) > _MOST_FILING_MS
        ]
        self._packets.delete_values(DEFAULT_NAMESPACE, _CHUNKS, orphans)

    def _delete_chunks(self, job: IngestJob) -> None:
        most = job.total // _CHUNK_DOCUMENTS + job.body_bytes // _CHUNK_BYTES + 1
        keys = [_chunk_key(job, number) for number in range(most)]
        self._packets.delete_values(DEFAULT_NAMESPACE, _CHUNKS, keys)


def _joined(rows: list[str]) -> bytes:
    return f"[{','.join(rows)}]".encode()


def _chunk_key(job: IngestJob, number: int) -> str:
    return f"{job.id}/{number:06}"


def _document(row: dict[str, Any]) -> Document | DocumentError:
    if "error" in row:
        return DocumentError(row["id"], row["error"])
    return Document(id=row["id"], text=row["text"], metadata=row["metadata"])
