"""A response synthesizer: what any retriever found is answered from packets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.types import RESPONSE_TEXT_TYPE

from kvpacket_store.api import Engine
from kvpacket_store.integrations.llama_index.llm import KVPacketLLM
from kvpacket_store.integrations.llama_index.nodes import AnyNode
from kvpacket_store.types import Text

__all__ = ["KVPacketSynthesizer"]

ANSWER = "kvpacket"
"""Under which a response's metadata has the whole answer."""


class KVPacketSynthesizer(BaseSynthesizer):
    """Answers a query from the nodes of any retriever, matched with packets by their content.

    The place to plug packets into an existing query engine. A response's ``metadata["kvpacket"]``
    is the answer as of ``kvps ask --json``: documents, usage with cached tokens, timings. A
    streaming response has none.

    Parameters
    ----------
    engine : Engine
        Over an open store.
    keep : bool
        File nodes that are not stored yet.
    streaming : bool
        Answer piece by piece.
    callback_manager : CallbackManager, optional
        LlamaIndex's.
    **options
        As `KVPacketLLM` takes them: namespace, max_tokens, temperature, timeout, options.

    Examples
    --------
    ::

        RetrieverQueryEngine(your_retriever, KVPacketSynthesizer(engine)).query("Who?")
    """

    def __init__(
        self,
        engine: Engine,
        *,
        keep: bool = False,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
        **options: Any,
    ) -> None:
        self._answering = KVPacketLLM(engine=engine, **options)
        self._keep = keep
        super().__init__(
            llm=self._answering, streaming=streaming, callback_manager=callback_manager
        )

    def synthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Answer from nodes; their texts are taken as they are, without metadata."""
        return super().synthesize(
            query, nodes, additional_source_nodes, given_nodes=nodes, **response_kwargs
        )

    async def asynthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """As `synthesize`, off the event loop."""
        return await super().asynthesize(
            query, nodes, additional_source_nodes, given_nodes=nodes, **response_kwargs
        )

    def get_response(
        self,
        query_str: str,
        text_chunks: Sequence[str],
        given_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TEXT_TYPE:
        """Answer from nodes, or from texts where nobody gave nodes."""
        options = self._options(text_chunks, given_nodes, response_kwargs)
        if self._streaming:
            pieces = self._answering.stream_complete(query_str, **options)
            return (piece.delta or "" for piece in pieces)
        return _AnswerText.of(self._answering.complete(query_str, **options))

    async def aget_response(
        self,
        query_str: str,
        text_chunks: Sequence[str],
        given_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TEXT_TYPE:
        """As `get_response`, off the event loop."""
        options = self._options(text_chunks, given_nodes, response_kwargs)
        if self._streaming:
            pieces = await self._answering.astream_complete(query_str, **options)
            return (piece.delta or "" async for piece in pieces)
        return _AnswerText.of(await self._answering.acomplete(query_str, **options))

    def _options(
        self,
        text_chunks: Sequence[str],
        given_nodes: Sequence[NodeWithScore] | None,
        response_kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        documents: Sequence[AnyNode] = (
            [Text(chunk) for chunk in text_chunks] if given_nodes is None else given_nodes
        )
        return {"keep": self._keep, **response_kwargs, "documents": documents}

    def _prepare_response_output(
        self, response_str: RESPONSE_TEXT_TYPE | None, source_nodes: list[NodeWithScore]
    ) -> RESPONSE_TYPE:
        response = super()._prepare_response_output(response_str, source_nodes)
        if isinstance(response_str, _AnswerText):
            response.metadata = {**(response.metadata or {}), ANSWER: response_str.answer}
        return response

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        del prompts


class _AnswerText(str):
    """A text that carries the answer that it is from, through hands that know of texts alone."""

    answer: dict[str, Any]

    @classmethod
    def of(cls, completion: CompletionResponse) -> _AnswerText:
        text = cls(completion.text)
        text.answer = completion.raw or {}
        return text
