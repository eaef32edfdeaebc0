"""Answers → LangChain's messages, whole and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from kvpacket_store.api import Answer, Piece

__all__ = ["chat_chunk", "chat_result"]


def chat_result(pieces: Sequence[Piece], model_name: str) -> ChatResult:
    """Return the result of an answer, given all its pieces."""
    answer = pieces[-1].answer
    assert answer is not None  # noqa: S101 - a stream ends with its answer
    message = AIMessage(
        content=answer.text,
        usage_metadata=_usage(answer),
        response_metadata=_response_metadata(answer, model_name),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def chat_chunk(piece: Piece, model_name: str) -> ChatGenerationChunk:
    """Return a piece as a chunk; the last has usage and metadata."""
    chunk = AIMessageChunk(content=piece.text)
    if piece.answer is not None:
        chunk.usage_metadata = _usage(piece.answer)
        chunk.response_metadata = _response_metadata(piece.answer, model_name)
        chunk.chunk_position = "last"
    return ChatGenerationChunk(message=chunk)


def _usage(answer: Answer) -> UsageMetadata:
    usage = answer.usage
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
    )


def _response_metadata(answer: Answer, model_name: str) -> dict[str, Any]:
    told = answer.to_dict()
    names = ("documents", "usage", "timings_ms", "decode", "fallbacks")
    return {
        "model_name": model_name,
        "model_provider": "kvpacket",
        "finish_reason": answer.decode.finish_reason,
        **{name: told[name] for name in names},
    }
