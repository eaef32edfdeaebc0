"""A page to look at, and the figures that it shows."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

import kvpacket_store

from .callers import Reader, Role
from .page_of_ui import assembled_page
from .statistics import metric_values, store_statistics
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()
_PAGE = assembled_page()


@router.get("/ui", response_class=HTMLResponse)
async def ui(_caller: Reader) -> HTMLResponse:
    """Give the page; it has no data in it, and asks for them as any client does."""
    return HTMLResponse(_PAGE.html, headers=_PAGE.headers)


@router.get("/stats")
async def stats(
    caller: Reader, services: ServicesOfRequest, namespace: str | None = None
) -> dict[str, Any]:
    """Answer as ``kvps stats --json``, with what ``GET /metrics`` counts beside it.

    Metrics count all namespaces together: who may not read them there finds none here.
    """
    work = services.reports.submit(
        lambda _cancelled: [store_statistics(services.store, caller, namespace)]
    )
    return {
        **await work.last(),
        "version": kvpacket_store.__version__,
        "not_ready": await services.reasons_not_ready(),
        "metrics": metric_values(services.metrics.registry) if caller.role >= Role.ADMIN else {},
    }
