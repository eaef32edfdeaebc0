"""Is it up, is it ready, what is it, how does it do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

import kvpacket_store

from .callers import Admin
from .problem_responses import ProblemResponse
from .problems import BUSY_RETRY_AFTER_S, Problem
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, Any]:
    """Answer as soon as the process is up."""
    return {"status": "ok"}


@router.get("/ready", response_model=None)
async def ready(services: ServicesOfRequest) -> Response:
    """Answer 200 when the store is open and the model loaded, else 503 with the reasons."""
    reasons = await services.reasons_not_ready()
    members = {"ready": not reasons, "reasons": reasons}
    if not reasons:
        return JSONResponse(members)
    return ProblemResponse(
        Problem(
            503, "Not ready", "; ".join(reasons), retry_after_s=BUSY_RETRY_AFTER_S, members=members
        )
    )


@router.get("/version")
async def version(services: ServicesOfRequest) -> dict[str, Any]:
    """Say which release this is, and how exact verifying is on this machine once that is known."""
    return {
        "name": "kvpacket-store",
        "version": kvpacket_store.__version__,
        "exactness": services.exactness and services.exactness.to_dict(),
    }


@router.get("/metrics", response_model=None)
async def metrics(_caller: Admin, services: ServicesOfRequest) -> Response:
    """Give Prometheus what it counts, of all namespaces; the engine's once that is loaded."""
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)
