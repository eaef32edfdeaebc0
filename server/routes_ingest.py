"""Documents come in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse

from kvpacket_store.api import IngestReport, Store

from .callers import Writer
from .idempotency import IdempotentRequest
from .limits import ServerLimits
from .schemas import IngestRequest
from .wiring import Services, ServicesOfRequest

__all__ = ["router"]

router = APIRouter()


@router.post("/ingest", response_model=None)
async def ingest(
    body: IngestRequest,
    caller: Writer,
    services: ServicesOfRequest,
    prefer: Annotated[str, Header()] = "",
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Prefill and file documents; a few can be asked about when this answers, many are a job.

    With an ``Idempotency-Key``, the same request within a day gets the same answer, and is not
    done again. It goes on when the client leaves: sending the same documents again then costs
    nothing.
    """
    namespace = caller.namespace_for(body.namespace)

    async def answer() -> Response:
        return await _answer(body, namespace, prefer, services)

    if idempotency_key is None:
        return await answer()
    whole = (await asyncio.to_thread(body.model_dump_json)).encode()
    request = IdempotentRequest(f"{caller.name}\n{namespace}", idempotency_key, whole)
    return await services.idempotency.answer(request, answer)


async def _answer(body: IngestRequest, namespace: str, prefer: str, services: Services) -> Response:
    store = services.engine.store
    if _is_job(body, prefer, services.limits):
        documents = [document.to_document() for document in body.documents]
        job = await services.jobs.submit(documents, namespace)
        return JSONResponse(job.to_dict(), 202, {"Location": f"/jobs/{job.id}"})
    report = await services.ingests.submit(partial(_ingest, store, body, namespace)).last()
    return JSONResponse(report.to_dict())


def _is_job(body: IngestRequest, prefer: str, limits: ServerLimits) -> bool:
    preferences = {one.partition(";")[0].strip().lower() for one in prefer.split(",")}
    return (
        "respond-async" in preferences
        or len(body.documents) > limits.ingest_documents
        or body.text_bytes > limits.ingest_text_bytes
    )


def _ingest(
    store: Store, body: IngestRequest, namespace: str, _cancelled: threading.Event
) -> Iterator[IngestReport]:
    documents = [document.to_document() for document in body.documents]
    yield store.ingest(documents, namespace=namespace)
