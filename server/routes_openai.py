"""OpenAI's surface: chat completions, models, embeddings."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from kvpacket_store.api import Store
from kvpacket_store.errors import NotFoundError, UsageError

from .callers import Reader
from .connection import generate_while_connected
from .event_stream import PieceStream
from .openai_answers import ChatChunks, Completion
from .openai_schemas import ChatRequest, EmbeddingsRequest
from .wiring import ServicesOfRequest

__all__ = ["router"]

router = APIRouter(prefix="/v1")


@router.post("/chat/completions", response_model=None)
async def chat_completions(
    body: ChatRequest, request: Request, caller: Reader, services: ServicesOfRequest
) -> Response:
    """Answer the last message; a closed connection stops the decoding within one step."""
    completion = Completion(_model_of(services.store, body.model))
    generations, make_request = services.generations, partial(body.to_request, caller)
    if body.stream:
        chunks = ChatChunks(completion, includes_usage=body.includes_usage)
        return PieceStream(generations, make_request, chunks)
    async with generate_while_connected(generations, make_request, request.receive) as work:
        piece = await work.last()
    if piece.answer is None:
        raise AssertionError("the last piece has the answer")
    return JSONResponse(completion.whole(piece.answer))


@router.get("/models")
async def models(_caller: Reader, services: ServicesOfRequest) -> dict[str, Any]:
    """List the one model."""
    return {"object": "list", "data": [_model(services.store)]}


@router.get("/models/{name:path}")
async def model(name: str, _caller: Reader, services: ServicesOfRequest) -> dict[str, Any]:
    """Describe the model, by its name."""
    _model_of(services.store, name)
    return _model(services.store)


@router.post("/embeddings", response_model=None)
async def embeddings(
    body: EmbeddingsRequest, _caller: Reader, services: ServicesOfRequest
) -> Response:
    """Embed texts as retrieval does. Usage counts nothing: that model's tokens are not ours."""
    embedder = services.engine.store.embedder
    if body.dimensions not in (None, embedder.dimension):
        raise UsageError(f"embeddings have {embedder.dimension} dimensions; ask for these")
    vectors = await services.embeddings.submit(lambda _: [embedder.embed(body.input)]).last()
    is_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(row) if is_text else [*row]}
        for index, row in enumerate(np.asarray(vectors, "<f4").tolist())
    ]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    found = {"object": "list", "data": data, "model": embedder.name, "usage": usage}
    return JSONResponse(found)


def _base64(row: list[float]) -> str:
    return base64.b64encode(np.array(row, "<f4").tobytes()).decode()


def _model_of(store: Store, name: str | None) -> str:
    """Return the model's name; another one is not there.

    Raises
    ------
    NotFoundError
        The request names it.
    """
    own = store.meta.model
    if name not in (None, own):
        raise NotFoundError(f"the model is {own!r}; there is no other")
    return own


def _model(store: Store) -> dict[str, Any]:
    return {"id": store.meta.model, "object": "model", "created": 0, "owned_by": "kvpacket-store"}
