"""A LlamaIndex LLM over an engine: conversations, and documents from packets."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.llm import LLM
from pydantic import Field

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine, Piece
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.asking import pieces_of, request_of
from kvpacket_store.integrations.background import in_background
from kvpacket_store.integrations.conversation import Asked, asked_of_turns
from kvpacket_store.integrations.llama_index.answers import (
    alast,
    as_chat,
    as_completion,
    atold,
    last,
    told,
)
from kvpacket_store.integrations.llama_index.nodes import AnyNode, EngineField, to_items

__all__ = ["KVPacketLLM"]

_ROLES = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.CHATBOT: "assistant",
}


class KVPacketLLM(LLM):
    """Answers with a store's model; without ``documents`` it reads the messages alone.

    In a query engine, LlamaIndex writes what was retrieved into the prompt: use
    `KVPacketSynthesizer` there, which answers from packets.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    namespace : str
        Whose documents.
    max_tokens : int
        Longest answer.
    temperature : float
        0 is greedy.
    timeout : float, optional
        Seconds for a whole answer; a TimeoutError after that.
    options : mapping
        More of `Engine.generate`: ``stop``, ``decode``, ``exactness``, ``seed`` and others.

    Calls take ``documents`` (ids, nodes, `Document` or `Text`; nodes are matched by content) and
    every option of `Engine.generate`. ``raw`` is the whole answer as of ``kvps ask --json``;
    ``additional_kwargs`` has token counts.

    Examples
    --------
    ::

        llm = KVPacketLLM(engine=engine)
        llm.complete("Where does the Rhine rise?", documents=["rhine"]).text
    """

    engine: EngineField
    namespace: str = DEFAULT_NAMESPACE
    max_tokens: int = 64
    temperature: float = 0.0
    timeout: float | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        store = self.engine.get().store
        return LLMMetadata(
            context_window=store.model.max_positions,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=store.meta.model,
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer the last message."""
        return last(self._pieces(_asked(messages), kwargs, threading.Event()), as_chat)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a prompt as a question."""
        del formatted
        return last(self._pieces(_alone(prompt), kwargs, threading.Event()), as_completion)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer the last message piece by piece; closing the iterator stops decoding."""
        return told(self._pieces(_asked(messages), kwargs, threading.Event()), as_chat)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Answer a prompt piece by piece."""
        del formatted
        return told(self._pieces(_alone(prompt), kwargs, threading.Event()), as_completion)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """As `chat`, on a thread; cancelling stops decoding."""
        return await alast(self._apieces(_asked(messages), kwargs), as_chat)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """As `complete`, on a thread; cancelling stops decoding."""
        del formatted
        return await alast(self._apieces(_alone(prompt), kwargs), as_completion)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """As `stream_chat`, on a thread."""
        return atold(self._apieces(_asked(messages), kwargs), as_chat)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """As `stream_complete`, on a thread."""
        del formatted
        return atold(self._apieces(_alone(prompt), kwargs), as_completion)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes it under."""
        return "KVPacketLLM"

    def _pieces(
        self, asked: Asked, kwargs: Mapping[str, Any], cancel: threading.Event
    ) -> Iterator[Piece]:
        """Ask the engine."""
        engine: Engine = self.engine.get()
        call = dict(kwargs)
        documents: Iterable[AnyNode] = call.pop("documents", ())
        own = {
            "namespace": self.namespace,
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "timeout": self.timeout,
            **self.options,
        }
        request = request_of(engine, own, call)

        def find_items() -> Sequence[DocumentItem]:
            return to_items(engine.store, request["namespace"], documents)

        return pieces_of(engine, asked, find_items, request, cancel)

    def _apieces(self, asked: Asked, kwargs: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        return in_background(partial(self._pieces, asked, kwargs))


def _alone(prompt: str) -> Asked:
    return Asked(None, (), prompt)


def _asked(messages: Sequence[ChatMessage]) -> Asked:
    """Take messages apart.

    Raises
    ------
    UsageError
        The first or the last one is no user's, or one holds something else than text.
    """
    return asked_of_turns((_role(message), _text(message)) for message in messages)


def _role(message: ChatMessage) -> str:
    if message.role not in _ROLES:
        raise UsageError(f"this model takes no {message.role.value} messages")
    return _ROLES[message.role]


def _text(message: ChatMessage) -> str:
    for block in message.blocks:
        if not isinstance(block, TextBlock):
            raise UsageError(f"a message has a {block.block_type!r} block; only text is read")
    return message.content or ""
