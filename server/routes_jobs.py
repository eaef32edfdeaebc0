"""Bulk ingests: how far they are, what became of them, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from .callers import Reader, Writer
from .event_stream import event
from .job import IngestJob
from .jobs import Jobs
from .schemas import Text
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()

_MOST_LISTED = 1000


@router.get("/jobs")
async def list_jobs(
    caller: Reader,
    services: ServicesOfRequest,
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    after: Text | None = None,
    namespace: Text | None = None,
) -> dict[str, Any]:
    """Give a page of jobs, the oldest first; ``next`` is the next ``after``."""
    jobs, following = services.jobs.page(caller.namespace_for(namespace), limit, after)
    return {"jobs": [job.to_dict() for job in jobs], "next": following}


@router.get("/jobs/{job_id}")
async def show(
    job_id: str, caller: Reader, services: ServicesOfRequest, namespace: Text | None = None
) -> dict[str, Any]:
    """Give one job: its state, and what ``kvps ingest --json`` would say by now."""
    return services.jobs.get(job_id, caller.namespace_for(namespace)).to_dict()


@router.delete("/jobs/{job_id}")
async def delete(
    job_id: str, caller: Writer, services: ServicesOfRequest, namespace: Text | None = None
) -> dict[str, Any]:
    """Cancel a job, after the document that it is at; forget one that is finished.

    What is filed stays.
    """
    job = services.jobs.get(job_id, caller.namespace_for(namespace))
    await services.jobs.delete(job)
    return job.to_dict()


@router.get("/jobs/{job_id}/events", response_model=None)
async def events(
    job_id: str, caller: Reader, services: ServicesOfRequest, namespace: Text | None = None
) -> StreamingResponse:
    """Send the job as server-sent events whenever it has changed, until it is finished."""
    job = services.jobs.get(job_id, caller.namespace_for(namespace))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _events(services.jobs, job), media_type="text/event-stream", headers=headers
    )


async def _events(jobs: Jobs, job: IngestJob) -> AsyncIterator[bytes]:
    async for now in jobs.watch(job):
        yield b": waiting\n\n" if now is None else event(now.to_dict())
