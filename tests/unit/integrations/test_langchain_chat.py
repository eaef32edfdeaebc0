"""LangChain: from a retriever to an answer."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from kvpacket_store.api import Engine
from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketRetriever
from kvpacket_store.types import Document

QUESTION = "Where does the Rhine rise?"


@pytest.fixture
def engine(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(
        [
            Document("rhine", "The Rhine rises in the Alps.", {"kind": "river"}),
            Document("oxygen", "Oxygen is a gas. Plants give it off.", {"kind": "gas"}),
        ]
    )
    return Engine(store)


def test_from_a_retriever_to_an_answer(engine):
    documents = KVPacketRetriever(engine=engine, k=1).invoke(QUESTION)
    assert [d.page_content for d in documents] == ["The Rhine rises in the Alps."]
    assert documents[0].metadata["document_id"] == "rhine"
    assert documents[0].metadata["kind"] == "river"
    chat = ChatKVPacket(engine=engine, max_tokens=8)
    message = chat.invoke(QUESTION, documents=documents, ignore_eos=True)
    direct = engine.generate(QUESTION, documents=["rhine"], max_new_tokens=8, ignore_eos=True)
    assert message.content == direct.text
    usage = message.usage_metadata
    assert usage["output_tokens"] == 8
    assert 0 < usage["input_token_details"]["cache_read"] < usage["input_tokens"]
    assert message.response_metadata["finish_reason"] == "length"


def test_only_the_retrieved_segments_are_asked(new_store):
    store = new_store(segment_tokens=32)
    text = "\n\n".join(f"Paragraph {i} is here." for i in range(20))
    store.ingest([Document("novel", text)])
    engine = Engine(store)
    documents = KVPacketRetriever(engine=engine, k=2).invoke("Paragraph 7")
    message = ChatKVPacket(engine=engine, max_tokens=2).invoke(
        "Paragraph 7", documents=documents, ignore_eos=True
    )
    direct = engine.generate(
        "Paragraph 7",
        documents=[("novel", [d.metadata["segment"] for d in documents])],
        max_new_tokens=2,
        ignore_eos=True,
    )
    assert message.content == direct.text
    assert message.usage_metadata["input_tokens"] == direct.usage.prompt_tokens


def test_streaming_adds_up_to_the_same_message(engine):
    chat = ChatKVPacket(engine=engine, max_tokens=8)
    whole = chat.invoke(QUESTION, documents=["rhine"], ignore_eos=True)
    chunks = list(chat.stream(QUESTION, documents=["rhine"], ignore_eos=True))
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.content == whole.content
    assert total.usage_metadata["output_tokens"] == 8


def test_without_documents_the_store_retrieves(engine):
    message = ChatKVPacket(engine=engine, max_tokens=4).invoke(QUESTION, ignore_eos=True)
    assert message.usage_metadata["input_token_details"]["cache_read"] > 0


@pytest.mark.parametrize(
    "messages",
    [
        [SystemMessage("Be brief."), HumanMessage(QUESTION)],
        [HumanMessage("Hello"), AIMessage("Hi"), HumanMessage(QUESTION)],
    ],
)
def test_conversations_are_refused_not_cut(engine, messages):
    with pytest.raises(UsageError, match="one human message"):
        ChatKVPacket(engine=engine).invoke(messages)
