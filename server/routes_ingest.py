"""Documents come in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kvpacket_store.api import IngestReport, Store

from .callers import Writer
from .limits import ServerLimits
from .schemas import IngestRequest
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()


@router.post("/ingest", response_model=None)
async def ingest(body: IngestRequest, caller: Writer, services: ServicesOfRequest) -> Response:
    """Prefill and file documents; they can be asked about when this answers.

    It goes on when the client leaves: sending the same documents again then costs nothing.
    """
    _require_small(body, services.limits)
    store, namespace = services.engine.store, caller.namespace_for(body.namespace)
    report = await services.ingests.submit(partial(_ingest, store, body, namespace)).last()
    return JSONResponse(report.to_dict())


def _require_small(body: IngestRequest, limits: ServerLimits) -> None:
    documents, text_bytes = len(body.documents), body.text_bytes
    if documents > limits.ingest_documents or text_bytes > limits.ingest_text_bytes:
        raise HTTPException(
            413,
            f"{documents} documents with {text_bytes} bytes of text in one request; split them "
            f"over requests of at most {limits.ingest_documents} documents and "
            f"{limits.ingest_text_bytes} bytes of text each, or use `kvps ingest`",
        )


def _ingest(
    store: Store, body: IngestRequest, namespace: str, _cancelled: threading.Event
) -> Iterator[IngestReport]:
    documents = [document.to_document() for document in body.documents]
    yield store.ingest(documents, namespace=namespace)
