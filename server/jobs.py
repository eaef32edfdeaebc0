"""Bulk ingests, one after the other beside everything else; kept until they are forgotten."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from kvpacket_store.api import Store
from kvpacket_store.errors import DocumentError, KVPacketError, NotFoundError
from kvpacket_store.types import Document

from .job import IngestJob, JobState, new_job, with_report
from .job_shelf import JobShelf, chunks_of
from .limits import ServerLimits
from .metrics import Metrics
from .problem_responses import log_own_fault
from .problems import problem_of
from .refusals import ShuttingDownError
from .worker import WorkerPool

__all__ = ["Jobs"]

_EVENT_INTERVAL_S = 0.2  # at most so often
_KEEP_ALIVE_S = 15.0


class Jobs:
    """All jobs of a store. Use it from one event loop.

    Parameters
    ----------
    store : Store
        Files the documents, and keeps the jobs.
    limits : ServerLimits
        How many jobs, and how many bytes of their documents, are kept.
    metrics : Metrics
        Told how each job ended.
    """

    def __init__(self, store: Store, limits: ServerLimits, metrics: Metrics) -> None:
        self._store, self._limits, self._metrics = store, limits, metrics
        self._shelf = JobShelf(store.packets)
        self._jobs: dict[str, IngestJob] = {}
        self._pool = WorkerPool("job", running=1, waiting=sys.maxsize)  # `submit` bounds them
        self._claiming, self._deleting = threading.Lock(), asyncio.Lock()
        self._stopping = threading.Event()
        self._reserved_bytes = self._reserved = 0

    async def resume(self) -> None:
        """Take up what another server has left. What it had filed of these costs a hash."""
        for job in await asyncio.to_thread(lambda: [*self._shelf.jobs()]):
            self._jobs[job.id] = job
        if self._store.packets.is_read_only:
            return
        await asyncio.to_thread(self._shelf.delete_orphans, set(self._jobs))
        for job in self._jobs.values():
            if not job.is_finished:
                job.state = "queued"
                self._start(job)

    async def submit(self, documents: Sequence[Document], namespace: str) -> IngestJob:
        """Keep documents and file them in their turn; they are safe when this returns.

        Raises
        ------
        asyncio.QueueFull
            As many jobs are unfinished, or as many bytes wait, as may be.
        ShuttingDownError
            Nothing new begins.
        """
        if self._stopping.is_set():
            raise ShuttingDownError
        chunks = await asyncio.to_thread(chunks_of, documents)
        job = new_job(namespace, len(documents), sum(map(len, chunks)))
        forgotten = self._make_room(job)
        self._reserved += 1
        self._reserved_bytes += job.body_bytes
        try:
            for old in forgotten:
                await asyncio.to_thread(self._shelf.forget, old)
            await asyncio.to_thread(self._shelf.file, job, chunks)
        finally:
            self._reserved -= 1
            self._reserved_bytes -= job.body_bytes
        self._jobs[job.id] = job
        with suppress(ShuttingDownError):  # it is kept: the next server files it
            self._start(job)
        return job

    def get(self, job_id: str, namespace: str) -> IngestJob:
        """Return a job of a namespace.

        Raises
        ------
        NotFoundError
            There is none, or it is another's.
        """
        job = self._jobs.get(job_id)
        if job is None or job.namespace != namespace:
            raise NotFoundError(f"no job {job_id[:80]!r}; finished jobs are forgotten in time")
        return job

    def page(
        self, namespace: str, limit: int, after: str | None
    ) -> tuple[list[IngestJob], str | None]:
        """Return jobs of a namespace, the oldest first, and where the next page begins."""
        own = (job for job in self._jobs.values() if job.namespace == namespace)
        later = sorted((job for job in own if after is None or job.id > after), key=_id_of)
        return later[:limit], later[limit - 1].id if len(later) > limit else None

    async def delete(self, job: IngestJob) -> None:
        """Stop a job after the document that it is at; forget a finished one."""
        async with self._deleting:
            if job.is_finished:
                self._jobs.pop(job.id, None)
                await asyncio.to_thread(self._shelf.forget, job)
                return
            job.cancelled.set()
            if self._claim(job, "cancelled"):
                self._metrics.count_job("cancelled")
                await asyncio.to_thread(self._shelf.update, job)
                _tell(job)

    async def watch(self, job: IngestJob) -> AsyncIterator[IngestJob | None]:
        """Yield a job now and whenever it has changed, until it is finished or the server ends.

        None comes where nothing has changed for long.
        """
        while True:
            changed = job.changed
            yield job
            if job.is_finished or self._stopping.is_set():
                return
            while not await _happens(changed):
                yield None
            await asyncio.sleep(_EVENT_INTERVAL_S)

    def stop(self) -> None:
        """Stop after the document that is at work; the rest is kept for the next server."""
        self._stopping.set()
        self._pool.drain()
        for job in self._jobs.values():
            _tell(job)

    async def close(self) -> None:
        """Stop, and wait for it."""
        self.stop()
        await self._pool.close()

    def _make_room(self, job: IngestJob) -> list[IngestJob]:
        """Take out finished jobs, the oldest first, and return them; refuse what is too much."""
        waiting = [one for one in self._jobs.values() if not one.is_finished]
        held_bytes = self._reserved_bytes + sum(one.body_bytes for one in waiting)
        most, most_bytes = self._limits.kept_jobs, self._limits.kept_job_bytes
        if len(waiting) + self._reserved >= most or held_bytes + job.body_bytes > most_bytes:
            raise asyncio.QueueFull(
                f"{len(waiting)} jobs with {held_bytes} bytes of documents wait; try again later"
            )
        finished = sorted((one for one in self._jobs.values() if one.is_finished), key=_id_of)
        surplus = max(len(self._jobs) + self._reserved + 1 - most, 0)
        return [self._jobs.pop(one.id) for one in finished[:surplus]]

    def _start(self, job: IngestJob) -> None:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(_tell, job)

        def run(_cancelled: threading.Event) -> Iterator[None]:
            if self._claim(job, "running"):
                self._run(job, tell)
            yield None

        self._pool.submit(run)

    def _claim(self, job: IngestJob, state: JobState) -> bool:
        """Take a job out of the queue; one of two threads that want it gets it."""
        with self._claiming:
            is_mine = job.state == "queued"
            if is_mine:
                job.state = state
        return is_mine

    def _run(self, job: IngestJob, tell: Callable[[], None]) -> None:
        """File a job's documents; in the worker's thread."""
        tell()
        try:
            for chunk in self._shelf.chunks(job):
                self._file_chunk(job, chunk, tell)
                if job.cancelled.is_set() or self._stopping.is_set():
                    break
            state = _state_after(job)
        except Exception as error:
            log_own_fault(error)
            job.problem = problem_of(error).to_dict()
            state = "failed"
        with suppress(KVPacketError):  # a row that stays behind lets the next server do it again
            self._shelf.update(replace(job, state=state))
        job.state = state  # only now: a finished job may be forgotten
        if job.is_finished:
            self._metrics.count_job(state)
        tell()

    def _file_chunk(
        self, job: IngestJob, chunk: list[Document | DocumentError], tell: Callable[[], None]
    ) -> None:
        before = job.done

        def wanted() -> Iterator[Document | DocumentError]:
            for item in chunk:
                if job.cancelled.is_set() or self._stopping.is_set():
                    return
                yield item
                job.done += 1
                tell()

        try:
            report = self._store.ingest(wanted(), namespace=job.namespace)
        except BaseException:
            job.done = before  # its outcome is not known
            raise
        job.report = with_report(job.report, report)
        self._shelf.update(job)


async def _happens(changed: asyncio.Event) -> bool:
    """Wait for a change; return False where none came for long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_KEEP_ALIVE_S):
            await changed.wait()
    return changed.is_set()


def _state_after(job: IngestJob) -> JobState:
    """Return what a job is whose thread has stopped; ``queued`` is for the next server."""
    if job.done == job.total:
        return "done"
    return "cancelled" if job.cancelled.is_set() else "queued"


def _tell(job: IngestJob) -> None:
    """Wake who watches a job; on the event loop."""
    job.changed.set()
    job.changed = asyncio.Event()


def _id_of(job: IngestJob) -> str:
    return job.id
