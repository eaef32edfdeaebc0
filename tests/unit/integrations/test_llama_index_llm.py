"""LlamaIndex: LLM and response synthesizer, on a loop and off it."""

import asyncio
import pickle

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, LLMMetadata, MessageRole
from llama_index.core.llms.llm import LLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.llama_index import (
    KVPacketLLM,
    KVPacketRetriever,
    KVPacketSynthesizer,
)
from kvpacket_store.types import Text

pytestmark = pytest.mark.anyio
QUESTION = "Where does the Rhine rise?"
OPTIONS = {"max_tokens": 8, "options": {"ignore_eos": True}}


@pytest.fixture
def llm(engine):
    return KVPacketLLM(engine=engine, **OPTIONS)


def direct(engine, question=QUESTION, documents=(), **options):
    options = {"max_new_tokens": 8, "ignore_eos": True, **options}
    return engine.generate(question, documents=list(documents), **options)


async def test_every_way_to_ask_gives_the_same_answer(engine, llm):
    assert isinstance(llm, LLM)
    text = direct(engine, documents=["rhine"]).text
    message = [ChatMessage(QUESTION)]
    asked = {"documents": ["rhine"]}
    assert llm.complete(QUESTION, **asked).text == text
    assert llm.chat(message, **asked).message.content == text
    assert (await llm.acomplete(QUESTION, **asked)).text == text
    assert (await llm.achat(message, **asked)).message.content == text
    streams = [
        list(llm.stream_complete(QUESTION, **asked)),
        list(llm.stream_chat(message, **asked)),
        [r async for r in await llm.astream_complete(QUESTION, **asked)],
        [r async for r in await llm.astream_chat(message, **asked)],
    ]
    for responses in streams:
        assert len(responses) > 1
        assert "".join(r.delta for r in responses) == text
        assert responses[-1].raw["answer"] == text
        assert responses[0].raw is None


def test_responses_have_counts_and_the_whole_answer(engine, llm):
    direct(engine)  # the preamble
    response = llm.complete(QUESTION, documents=["rhine"])
    usage = direct(engine, documents=["rhine"]).usage
    assert response.additional_kwargs == {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": 8,
        "total_tokens": usage.prompt_tokens + 8,
        "cached_tokens": usage.cached_tokens,
    }
    assert response.raw["documents"][0]["id"] == "rhine"


def test_a_conversation_is_history_system_prompt_and_question(engine, llm):
    messages = [
        ChatMessage("Be brief.", role=MessageRole.SYSTEM),
        ChatMessage("Hello", role=MessageRole.USER),
        ChatMessage("Hi", role=MessageRole.ASSISTANT),
        ChatMessage(QUESTION),
    ]
    answer = direct(engine, history=[("Hello", "Hi")], system_prompt="Be brief.")
    assert llm.chat(messages).message.content == answer.text
    with pytest.raises(UsageError, match="last message"):
        llm.chat(messages[:-1])
    with pytest.raises(UsageError, match="tool"):
        llm.chat([ChatMessage("x", role=MessageRole.TOOL)])
    with pytest.raises(UsageError, match="only text"):
        llm.chat([ChatMessage(blocks=[ImageBlock(url="http://localhost/x.png")])])


def test_without_documents_it_reads_the_prompt_alone(engine, llm):
    assert llm.complete(QUESTION).text == direct(engine).text
    assert (
        llm.complete(QUESTION, max_tokens=3, temperature=1.0, seed=3).raw["usage"][
            "completion_tokens"
        ]
        == 3
    )


def test_what_it_says_of_itself(llm):
    assert llm.metadata == LLMMetadata(
        context_window=2048, num_output=8, is_chat_model=True, model_name="tiny-llama"
    )
    assert llm.class_name() == "KVPacketLLM"
    assert llm.to_dict()["max_tokens"] == 8
    assert "engine" not in llm.to_dict()


def test_it_comes_back_from_a_pickle_with_its_engine(engine, llm):
    again = pickle.loads(pickle.dumps(llm))
    assert again.engine.get() is engine
    assert again.complete(QUESTION).text == llm.complete(QUESTION).text


class Foreign(BaseRetriever):
    def __init__(self, *nodes):
        self._nodes = nodes
        super().__init__()

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=node, score=1.0) for node in self._nodes]


NODES = (
    TextNode(text="The Rhine rises in the Alps.", metadata={"file_name": "a.txt", "title": None}),
    TextNode(text="Nobody filed this.", id_="new"),
    TextNode(text="  "),
)


async def test_an_existing_query_engine_answers_from_packets(engine):
    synthesizer = KVPacketSynthesizer(engine, **OPTIONS)
    assert isinstance(synthesizer, BaseSynthesizer)
    query_engine = RetrieverQueryEngine(Foreign(*NODES), synthesizer)
    response = query_engine.query(QUESTION)
    documents = ["rhine", Text("Nobody filed this.")]
    assert response.response == direct(engine, documents=documents).text
    told = response.metadata["kvpacket"]
    tiers = [packet["tier"] for d in told["documents"] for packet in d["packets"]]
    assert tiers == ["disk", "prefill"]
    assert [node.node_id for node in response.source_nodes] == [n.node_id for n in NODES]
    assert (await query_engine.aquery(QUESTION)).response == response.response


async def test_streaming_responses_add_up(engine):
    synthesizer = KVPacketSynthesizer(engine, streaming=True, **OPTIONS)
    query_engine = RetrieverQueryEngine(Foreign(*NODES), synthesizer)
    text = direct(engine, documents=["rhine", Text("Nobody filed this.")]).text
    assert "".join(query_engine.query(QUESTION).response_gen) == text
    streamed = await query_engine.aquery(QUESTION)
    assert "".join([piece async for piece in streamed.async_response_gen()]) == text


def test_nodes_are_kept_if_told_to_and_ours_are_taken_by_packet(engine):
    query_engine = RetrieverQueryEngine(
        Foreign(*NODES), KVPacketSynthesizer(engine, keep=True, **OPTIONS)
    )
    query_engine.query(QUESTION)
    assert [e.id for e in engine.store.list().documents] == ["elbe", "new", "oxygen", "rhine"]
    own = RetrieverQueryEngine(
        KVPacketRetriever(engine, similarity_top_k=2), KVPacketSynthesizer(engine, **OPTIONS)
    )
    response = own.query(QUESTION)
    ids = [document["id"] for document in response.metadata["kvpacket"]["documents"]]
    assert ids == [node.metadata["document_id"] for node in response.source_nodes]
    assert response.response == direct(engine, documents=ids).text


def test_texts_alone_are_answered_too(engine):
    synthesizer = KVPacketSynthesizer(engine, **OPTIONS)
    text = synthesizer.get_response(QUESTION, ["The Rhine rises in the Alps."])
    assert text == direct(engine, documents=["rhine"]).text


async def test_a_cancelled_task_stops_decoding(engine, llm, monkeypatch):
    begun, seen = asyncio.Event(), []
    loop, stream = asyncio.get_running_loop(), engine.stream

    def endless(*args, cancel, **options):
        seen.append(cancel)
        yield from stream(*args, cancel=cancel, **options)
        loop.call_soon_threadsafe(begun.set)
        cancel.wait(60)

    monkeypatch.setattr(engine, "stream", endless)
    task = asyncio.create_task(llm.acomplete(QUESTION))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen[0].is_set()
