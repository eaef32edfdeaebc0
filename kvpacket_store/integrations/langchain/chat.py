"""A chat model that answers from packets."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field

from kvpacket_store.api import DEFAULT_NAMESPACE, Engine, Piece
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.integrations.asking import pieces_of, request_of
from kvpacket_store.integrations.background import in_background
from kvpacket_store.integrations.conversation import Asked
from kvpacket_store.integrations.langchain.answers import chat_chunk, chat_result
from kvpacket_store.integrations.langchain.documents import AnyDocument, to_items
from kvpacket_store.integrations.langchain.messages import asked_of

__all__ = ["ChatKVPacket"]


class ChatKVPacket(BaseChatModel):
    """Answers from packets: of documents that are passed, or retrieved by any retriever.

    Takes conversations: system messages stand in the place of the engine's system prompt, earlier
    turns between the documents and the question.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    retriever : BaseRetriever, optional
        Any of LangChain's: what it returns for the question is matched by content, so it need not
        know of packets. Without it, and without ``documents``, the store retrieves.
    keep : bool
        File what is not stored yet of documents that are passed or retrieved.
    namespace : str
        Whose documents.
    max_tokens : int
        Longest answer.
    temperature : float
        0 is greedy.
    timeout : float, optional
        Seconds for a whole answer; a TimeoutError after that.
    stop : list of str, optional
        The answer ends before the first of these.
    streaming : bool
        Stream even where ``invoke`` is called and a callback listens.
    options : mapping
        More of `Engine.generate`: ``decode``, ``exactness``, ``consistency``, ``seed`` and others.

    ``invoke``, ``stream`` and their twins take ``documents`` (ids, LangChain's, `Document` or
    `Text`; an empty list asks without any) and every option of `Engine.generate`. Usage has the
    cached tokens as ``cache_read``; ``response_metadata`` has documents, fallbacks, timings and how
    it was decoded.

    Examples
    --------
    ::

        chat = ChatKVPacket(engine=engine, retriever=faiss.as_retriever())
        print(chat.invoke("Where does the Rhine rise?").content)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: Engine
    retriever: BaseRetriever | None = None
    keep: bool = False
    namespace: str = DEFAULT_NAMESPACE
    max_tokens: int = 64
    temperature: float = 0.0
    timeout: float | None = None
    stop: list[str] | None = None
    streaming: bool = False
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "kvpacket"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model": self.engine.store.meta.model,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stop": self.stop,
            **self.options,
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_model_name"] = kwargs.get("model", self.engine.store.meta.model)
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked = asked_of(messages)
        documents = self._documents(asked, kwargs, run_manager)
        pieces = list(self._pieces(asked, documents, stop, kwargs, threading.Event()))
        return chat_result(pieces, self._model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        taken = self._apieces(messages, stop, run_manager, kwargs)
        async with aclosing(taken):
            return chat_result([piece async for piece in taken], self._model_name)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        asked = asked_of(messages)
        documents = self._documents(asked, kwargs, run_manager)
        for piece in self._pieces(asked, documents, stop, kwargs, threading.Event()):
            chunk = chat_chunk(piece, self._model_name)
            if run_manager is not None:
                run_manager.on_llm_new_token(piece.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with aclosing(self._apieces(messages, stop, run_manager, kwargs)) as taken:
            async for piece in taken:
                chunk = chat_chunk(piece, self._model_name)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(piece.text, chunk=chunk)
                yield chunk

    @property
    def _model_name(self) -> str:
        return self.engine.store.meta.model

    def _documents(
        self, asked: Asked, kwargs: dict[str, Any], run_manager: CallbackManagerForLLMRun | None
    ) -> Iterable[AnyDocument] | None:
        """Take what was passed, or ask the retriever; None leaves it to the store."""
        passed: Iterable[AnyDocument] | None = kwargs.pop("documents", None)
        if passed is not None or self.retriever is None:
            return passed
        callbacks = run_manager.handlers if run_manager else None
        return self.retriever.invoke(asked.question, RunnableConfig(callbacks=callbacks))

    async def _apieces(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        run_manager: AsyncCallbackManagerForLLMRun | None,
        kwargs: dict[str, Any],
    ) -> AsyncGenerator[Piece, None]:
        """Yield an answer's pieces; retrieval and decoding never hold up the event loop."""
        asked = asked_of(messages)
        documents: Iterable[AnyDocument] | None = kwargs.pop("documents", None)
        if documents is None and self.retriever is not None:
            callbacks = run_manager.handlers if run_manager else None
            config = RunnableConfig(callbacks=callbacks)
            documents = await self.retriever.ainvoke(asked.question, config)
        run = partial(self._pieces, asked, documents, stop, kwargs)
        async with aclosing(in_background(run)) as pieces:
            async for piece in pieces:
                yield piece

    def _pieces(
        self,
        asked: Asked,
        documents: Iterable[AnyDocument] | None,
        stop: list[str] | None,
        kwargs: Mapping[str, Any],
        cancel: threading.Event,
    ) -> Iterator[Piece]:
        """Ask the engine."""
        own = {
            "namespace": self.namespace,
            "keep": self.keep,
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "timeout": self.timeout,
            "stop": tuple((self.stop if stop is None else stop) or ()),
            **self.options,
        }
        request = request_of(self.engine, own, kwargs)

        def find_items() -> Sequence[DocumentItem] | None:
            if documents is None:
                return None
            return to_items(self.engine.store, request["namespace"], documents)

        return pieces_of(self.engine, asked, find_items, request, cancel)
