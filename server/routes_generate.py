"""Questions are answered, whole or piece by piece."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from kvpacket_store.api import Piece

from .connection import work_while_connected
from .event_stream import PieceStream
from .schemas import GenerateRequest
from .wiring import ServicesOfRequest

if TYPE_CHECKING:
    from kvpacket_store.api import Engine

__all__ = ["router"]

router = APIRouter()


@router.post("/generate", response_model=None)
async def generate(
    body: GenerateRequest, request: Request, services: ServicesOfRequest
) -> Response:
    """Answer a question; a closed connection stops the decoding within one step."""
    produce = partial(_pieces, services.engine, body)
    if body.stream:
        return PieceStream(services.generations, produce)
    async with work_while_connected(services.generations, produce, request.receive) as work:
        piece = await work.last()
    if piece.answer is None:
        raise AssertionError("the last piece has the answer")
    return JSONResponse(piece.answer.to_dict())


def _pieces(engine: Engine, body: GenerateRequest, cancelled: threading.Event) -> Iterator[Piece]:
    return engine.stream(body.query, cancel=cancelled, **body.arguments())
