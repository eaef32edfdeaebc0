"""Questions are answered, whole or piece by piece."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from .callers import Reader
from .connection import generate_while_connected
from .event_stream import NativeForm, PieceStream
from .schemas import GenerateRequest
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter()


@router.post("/generate", response_model=None)
async def generate(
    body: GenerateRequest, request: Request, caller: Reader, services: ServicesOfRequest
) -> Response:
    """Answer a question; a closed connection stops the decoding within one step."""
    generations = services.generations
    make_request = partial(body.to_request, caller)
    if body.stream:
        return PieceStream(generations, make_request, NativeForm())
    async with generate_while_connected(generations, make_request, request.receive) as work:
        piece = await work.last()
    if piece.answer is None:
        raise AssertionError("the last piece has the answer")
    return JSONResponse(piece.answer.to_dict())
