"""Answers → LlamaIndex's responses, whole and as they grow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
)

from kvpacket_store.api import Piece

__all__ = ["alast", "as_chat", "as_completion", "atold", "last", "told"]

R = TypeVar("R", ChatResponse, CompletionResponse)


def as_chat(text: str, piece: Piece) -> ChatResponse:
    """Return the answer so far as a chat response; the last one has counts and the whole answer."""
    message = ChatMessage(role=MessageRole.ASSISTANT, content=text)
    return ChatResponse(message=message, delta=piece.text, **_told_of(piece))


def as_completion(text: str, piece: Piece) -> CompletionResponse:
    """Return the answer so far as a completion; as `as_chat`."""
    return CompletionResponse(text=text, delta=piece.text, **_told_of(piece))


def told(pieces: Iterator[Piece], make: Callable[[str, Piece], R]) -> Generator[R, None, None]:
    """Yield a response for each piece, with the text so far."""
    text = ""
    for piece in pieces:
        text += piece.text
        yield make(text, piece)


def last(pieces: Iterator[Piece], make: Callable[[str, Piece], R]) -> R:
    """Return the response with the whole answer."""
    *_, whole = told(pieces, make)
    return whole


async def atold(
    pieces: AsyncGenerator[Piece, None], make: Callable[[str, Piece], R]
) -> AsyncGenerator[R, None]:
    """As `told`; leaving early closes what gives the pieces."""
    text = ""
    async with aclosing(pieces):
        async for piece in pieces:
            text += piece.text
            yield make(text, piece)


async def alast(pieces: AsyncGenerator[Piece, None], make: Callable[[str, Piece], R]) -> R:
    """As `last`; cancelling closes what gives the pieces."""
    async with aclosing(atold(pieces, make)) as responses:
        return [response async for response in responses][-1]


def _told_of(piece: Piece) -> dict[str, Any]:
    if piece.answer is None:
        return {}
    usage = piece.answer.usage
    counts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    return {"raw": piece.answer.to_dict(), "additional_kwargs": counts}
