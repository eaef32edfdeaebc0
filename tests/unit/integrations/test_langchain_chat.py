"""The chat model: conversations, options, streams, and what it refuses."""

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketRetriever
from kvpacket_store.types import Document

QUESTION = "Where does the Rhine rise?"


@pytest.fixture
def chat(engine):
    return ChatKVPacket(engine=engine, max_tokens=8, options={"ignore_eos": True})


def direct(engine, question=QUESTION, **options):
    return engine.generate(question, **{"max_new_tokens": 8, "ignore_eos": True, **options})


def added_up(chunks):
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return total


def test_from_a_retriever_to_an_answer(engine, chat):
    documents = KVPacketRetriever(engine=engine, k=1).invoke(QUESTION)
    assert [d.page_content for d in documents] == ["The Rhine rises in the Alps."]
    assert documents[0].metadata["document_id"] == "rhine"
    assert documents[0].metadata["kind"] == "river"
    answer = [direct(engine, documents=["rhine"]) for _ in range(2)][1]
    message = chat.invoke(QUESTION, documents=documents)
    assert message.content == answer.text
    usage = message.usage_metadata
    assert usage["output_tokens"] == 8
    assert usage["input_tokens"] == answer.usage.prompt_tokens
    assert usage["input_token_details"]["cache_read"] == answer.usage.cached_tokens
    told = message.response_metadata
    assert told["finish_reason"] == "length"
    assert told["documents"][0]["id"] == "rhine"
    assert told["fallbacks"] == []
    assert told["timings_ms"]["total"] > 0


def test_only_the_retrieved_segments_are_asked(new_store):
    from kvpacket_store.api import Engine

    store = new_store(segment_tokens=32)
    text = "\n\n".join(f"Paragraph {i} is here." for i in range(20))
    store.ingest([Document("novel", text)])
    engine = Engine(store)
    documents = KVPacketRetriever(engine=engine, k=2).invoke("Paragraph 7")
    chat = ChatKVPacket(engine=engine, max_tokens=2, options={"ignore_eos": True})
    message = chat.invoke("Paragraph 7", documents=documents)
    segments = [d.metadata["segment"] for d in documents]
    answer = direct(engine, "Paragraph 7", documents=[("novel", segments)], max_new_tokens=2)
    assert message.content == answer.text
    assert message.usage_metadata["input_tokens"] == answer.usage.prompt_tokens


def test_streaming_adds_up_to_the_same_message(chat):
    whole = chat.invoke(QUESTION, documents=["rhine"])
    chunks = list(chat.stream(QUESTION, documents=["rhine"]))
    total = added_up(chunks)
    assert len(chunks) > 1
    assert total.content == whole.content
    assert total.usage_metadata == {
        **whole.usage_metadata,
        "input_token_details": total.usage_metadata["input_token_details"],
    }
    assert total.response_metadata["documents"] == [
        {**whole.response_metadata["documents"][0]}
        | {"packets": [{**whole.response_metadata["documents"][0]["packets"][0], "tier": "ram"}]}
    ]


def test_without_documents_the_store_retrieves_and_an_empty_list_asks_without(engine, chat):
    message = chat.invoke(QUESTION)
    assert message.content == direct(engine).text
    alone = chat.invoke(QUESTION, documents=[])
    assert alone.content == direct(engine, documents=[]).text
    assert alone.response_metadata["documents"] == []


def test_a_conversation_is_history_system_prompt_and_question(engine, chat):
    messages = [
        SystemMessage("Be brief."),
        SystemMessage("Be kind."),
        HumanMessage("Hello"),
        HumanMessage([{"type": "text", "text": "you"}]),
        AIMessage("Hi"),
        ChatMessage("Now this:", role="user"),
        HumanMessage(QUESTION),
    ]
    message = chat.invoke(messages, documents=["rhine"])
    answer = direct(
        engine,
        f"Now this:\n\n{QUESTION}",
        documents=["rhine"],
        history=[("Hello\n\nyou", "Hi")],
        system_prompt="Be brief.\n\nBe kind.",
    )
    assert message.content == answer.text
    assert message.usage_metadata["input_tokens"] == answer.usage.prompt_tokens
    assert message.content != chat.invoke(QUESTION, documents=["rhine"]).content


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([HumanMessage(QUESTION), AIMessage("In the Alps.")], "last message"),
        ([SystemMessage("Be brief.")], "last message"),
        ([AIMessage("Welcome!"), HumanMessage(QUESTION)], "begins with"),
        ([HumanMessage([{"type": "image_url", "image_url": {"url": "x"}}])], "only text"),
        ([HumanMessage("x"), ToolMessage("y", tool_call_id="1"), HumanMessage("z")], "type 'tool'"),
        ([ChatMessage("x", role="critic"), HumanMessage("z")], "type"),
        (
            [
                HumanMessage("x"),
                AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
                HumanMessage("z"),
            ],
            "tools",
        ),
        ([HumanMessage("  ")], "empty"),
    ],
)
def test_what_it_cannot_read_is_refused_not_cut(chat, messages, reason):
    with pytest.raises(UsageError, match=reason):
        chat.invoke(messages)


def test_options_of_a_call_go_before_the_models_own(engine, chat):
    assert chat.invoke(QUESTION, max_tokens=3).usage_metadata["output_tokens"] == 3
    own = chat.model_copy(update={"options": {"max_new_tokens": 5, "ignore_eos": True}})
    assert own.invoke(QUESTION).usage_metadata["output_tokens"] == 5
    assert own.invoke(QUESTION, max_tokens=2).usage_metadata["output_tokens"] == 2
    seeded = {"temperature": 1.5, "seed": 7}
    assert chat.invoke(QUESTION, **seeded).content == direct(engine, **seeded).text
    bound = chat.bind(documents=["oxygen"], decode="verified")
    assert bound.invoke(QUESTION).response_metadata["decode"]["mode"] == "verified"
    assert chat.invoke(QUESTION, model="tiny-llama").content
    with pytest.raises(UsageError, match="this store is for 'tiny-llama'"):
        chat.invoke(QUESTION, model="another")
    with pytest.raises(UsageError, match="unknown options: tempo"):
        chat.invoke(QUESTION, tempo=1)


def test_stop_strings_of_model_and_call(chat):
    free = chat.invoke(QUESTION, max_tokens=40).content
    stop = next(c for c in free[3:] if c.isprintable())
    cut = free[: free.index(stop)]
    assert chat.invoke(QUESTION, max_tokens=40, stop=[stop]).content == cut
    own = chat.model_copy(update={"stop": [stop]})
    assert own.invoke(QUESTION, max_tokens=40).content == cut
    assert own.invoke(QUESTION, max_tokens=40, stop=["\0never"]).content == free


class Listener(BaseCallbackHandler):
    def __init__(self):
        self.tokens, self.queries = [], []

    def on_llm_new_token(self, token, **_):
        self.tokens.append(token)

    def on_retriever_start(self, serialized, query, **_):
        self.queries.append(query)


def test_callbacks_hear_tokens_and_the_retriever(engine, chat):
    listener = Listener()
    own = chat.model_copy(update={"retriever": KVPacketRetriever(engine=engine, k=1)})
    chunks = list(own.stream(QUESTION, config={"callbacks": [listener]}))
    assert "".join(listener.tokens) == added_up(chunks).content
    listener.tokens.clear()
    whole = own.invoke(QUESTION, config={"callbacks": [listener]})
    assert listener.queries == [QUESTION]
    assert own.invoke(QUESTION, stream=True).content == whole.content
