"""LangChain: a retriever over a store, and a chat model that answers from packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LCDocument
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from kvpacket_store.api import DEFAULT_NAMESPACE, Answer, Engine
from kvpacket_store.errors import UsageError

__all__ = ["ChatKVPacket", "KVPacketRetriever"]


class KVPacketRetriever(BaseRetriever):
    """Retrieves segments of a store as LangChain documents.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    k : int
        How many segments.
    namespace : str
        Whose documents.

    Returned documents have the segment's text and the metadata of their document, with
    ``document_id``, ``packet_key`` and ``score`` beside it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: Engine
    k: int = 5
    namespace: str = DEFAULT_NAMESPACE

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LCDocument]:
        del run_manager
        packets = self.engine.store.packets
        found = []
        for hit in self.engine.retriever.retrieve(query, self.namespace, k or self.k):
            manifest = packets.get_document(self.namespace, hit.document_id)
            segment = manifest.segments[hit.segment_index]
            text = packets.document_text(self.namespace, hit.document_id)
            extra = {
                "document_id": hit.document_id,
                "segment": hit.segment_index,
                "packet_key": hit.packet_key,
                "score": hit.score,
            }
            found.append(
                LCDocument(
                    id=f"{hit.document_id}#{hit.segment_index}",
                    page_content=text[segment.start_char : segment.end_char],
                    metadata={**manifest.metadata, **extra},
                )
            )
        return found


class ChatKVPacket(BaseChatModel):
    """Answers one question from packets.

    Parameters
    ----------
    engine : Engine
        Over an open store; its system prompt governs the answers.
    namespace : str
        Whose documents.
    max_tokens : int
        Longest answer.
    temperature : float
        0 is greedy.

    Pass ``documents`` when invoking: ids, or what `KVPacketRetriever` returned. Without it the
    store retrieves.

    Examples
    --------
    ::

        documents = KVPacketRetriever(engine=engine).invoke(question)
        ChatKVPacket(engine=engine).invoke(question, documents=documents).content
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: Engine
    namespace: str = DEFAULT_NAMESPACE
    max_tokens: int = 64
    temperature: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "kvpacket"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model": self.engine.store.meta.model,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del run_manager
        answer = self.engine.generate(_question(messages), **self._request(stop, kwargs))
        message = AIMessage(
            content=answer.text,
            usage_metadata=_usage(answer),
            response_metadata=self._response_metadata(answer),
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for piece in self.engine.stream(_question(messages), **self._request(stop, kwargs)):
            chunk = AIMessageChunk(content=piece.text)
            if piece.answer is not None:
                chunk.usage_metadata = _usage(piece.answer)
                chunk.response_metadata = self._response_metadata(piece.answer)
            if run_manager is not None:
                run_manager.on_llm_new_token(piece.text)
            yield ChatGenerationChunk(message=chunk)

    def _request(self, stop: list[str] | None, extra: dict[str, Any]) -> dict[str, Any]:
        request = {
            "namespace": self.namespace,
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stop": tuple(stop or ()),
            **extra,
        }
        if request.get("documents") is not None:
            request["documents"] = _parts(request["documents"])
        return request

    def _response_metadata(self, answer: Answer) -> dict[str, Any]:
        return {
            "model_name": self.engine.store.meta.model,
            "finish_reason": answer.decode.finish_reason,
            "fallbacks": [fallback.to_dict() for fallback in answer.fallbacks],
        }


def _question(messages: Sequence[BaseMessage]) -> str:
    """Return the one thing that was asked; conversations are refused, not cut."""
    if len(messages) != 1 or not isinstance(messages[0], HumanMessage):
        raise UsageError(
            "ChatKVPacket takes one human message; the system prompt is the engine's, and "
            "conversations come with sessions in a later version"
        )
    return messages[0].text


def _parts(documents: Sequence[str | LCDocument]) -> list[str | tuple[str, list[int]]]:
    """Return whole documents for ids, and of retrieved ones the segments that were retrieved."""
    parts: list[str | tuple[str, list[int]]] = []
    segments: dict[str, list[int]] = {}
    for document in documents:
        if isinstance(document, str):
            parts.append(document)
            continue
        document_id = str(document.metadata["document_id"])
        if document_id not in segments:
            segments[document_id] = []
            parts.append((document_id, segments[document_id]))
        segments[document_id].append(int(document.metadata["segment"]))
    return parts


def _usage(answer: Answer) -> UsageMetadata:
    usage = answer.usage
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
    )
