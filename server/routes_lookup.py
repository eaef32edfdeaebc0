"""Documents are found, and brought near, without an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from .callers import Reader
from .schemas import LookupRequest, PrefetchRequest
from .wiring import ServicesOfRequest

if TYPE_CHECKING:
    from kvpacket_store.api.prefetch import Prefetch

__all__ = ["router"]

router = APIRouter()


@router.post("/lookup")
async def lookup(
    body: LookupRequest, caller: Reader, services: ServicesOfRequest
) -> dict[str, Any]:
    """Retrieve as ``POST /generate`` would, and give what was found with its text."""
    engine, namespace = services.engine, caller.namespace_for(body.namespace)
    work = services.lookups.submit(
        lambda _: [
            engine.lookup(body.query, top_k=body.top_k, where=body.where, namespace=namespace)
        ]
    )
    return {"segments": [found.to_dict() for found in await work.last()]}


@router.post("/prefetch", status_code=202)
async def prefetch(
    body: PrefetchRequest, caller: Reader, services: ServicesOfRequest
) -> dict[str, Any]:
    """Let packets be loaded into memory; say how many are on their way, and answer at once."""
    engine, namespace = services.engine, caller.namespace_for(body.namespace)
    choosing = services.lookups.submit(
        lambda _: [
            engine.begin_prefetch(body.documents, body.query, top_k=body.top_k, namespace=namespace)
        ]
    )
    chosen = await choosing.last()
    services.prefetches.submit(lambda cancelled: _load(chosen, cancelled))
    services.metrics.count_prefetched(chosen.report.packets)
    return chosen.report.to_dict()


def _load(chosen: Prefetch, cancelled: threading.Event) -> Iterator[None]:
    chosen.run(cancelled)
    yield None
