"""Documents of any retriever, without ids or metadata of ours, are matched by content."""

import datetime

import pytest
from langchain_core.documents import Document as LCDocument
from langchain_core.retrievers import BaseRetriever

from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketRetriever
from kvpacket_store.types import Document, Text

QUESTION = "Where does the Rhine rise?"
NEW = "The Danube rises in the Black Forest."


class Foreign(BaseRetriever):
    """Knows nothing of packets."""

    documents: list[LCDocument]

    def _get_relevant_documents(self, query, *, run_manager):
        return self.documents


def chat_over(engine, *documents, **options):
    return ChatKVPacket(
        engine=engine,
        retriever=Foreign(documents=list(documents)),
        max_tokens=8,
        options={"ignore_eos": True},
        **options,
    )


def tiers(message):
    used = message.response_metadata["documents"]
    return [packet["tier"] for document in used for packet in document["packets"]]


@pytest.fixture
def engine(engine):
    engine.memory.max_bytes = 0
    engine.generate(QUESTION, documents=[], max_new_tokens=1)  # the preamble
    return engine


def test_a_stored_text_is_a_hit_whatever_id_and_metadata_say(engine, monkeypatch):
    monkeypatch.setattr(engine.store.prefiller, "segment", lambda *_: pytest.fail("prefilled"))
    when = {"source": "a.pdf", "day": datetime.date(2026, 1, 31), "weight": float("nan")}
    named = {"document_id": "oxygen", "segment": 0, "packet_key": "other"}
    for document in (
        LCDocument("The Rhine rises in the Alps."),
        LCDocument("\nThe Rhine rises in the Alps. \n", id="7", metadata={"page": 3}),
        LCDocument("The Rhine rises in the Alps.", metadata=when),
        LCDocument("The Rhine rises in the Alps.", metadata={"title": "Rivers of Europe"}),
        LCDocument("The Rhine rises in the Alps.", metadata=named),
    ):
        message = chat_over(engine, document).invoke(QUESTION)
        answer = engine.generate(QUESTION, documents=["rhine"], max_new_tokens=8, ignore_eos=True)
        assert message.content == answer.text
        assert tiers(message) == ["disk"]
        cached = message.usage_metadata["input_token_details"]["cache_read"]
        assert cached == answer.usage.cached_tokens


def test_a_title_in_the_metadata_is_used_where_it_was_filed(engine):
    engine.store.ingest([Document("titled", NEW, {"title": "Rivers"})])
    message = chat_over(engine, LCDocument(NEW, metadata={"title": "Rivers"})).invoke(QUESTION)
    assert tiers(message) == ["disk"]
    answer = engine.generate(QUESTION, documents=["titled"], max_new_tokens=8, ignore_eos=True)
    assert message.content == answer.text


def test_what_is_not_stored_is_prefilled_and_kept_if_told_to(engine):
    documents = [LCDocument("The Elbe rises in Bohemia."), LCDocument(NEW, id="danube")]
    for _ in range(2):
        message = chat_over(engine, *documents).invoke(QUESTION)
        assert tiers(message) == ["disk", "prefill"]
    kept = chat_over(engine, *documents, keep=True)
    assert tiers(kept.invoke(QUESTION)) == ["disk", "prefill"]
    assert tiers(kept.invoke(QUESTION)) == ["disk", "disk"]
    assert message.content == kept.invoke(QUESTION).content
    assert {entry.id for entry in engine.store.list().documents} == {
        *("rhine", "elbe", "oxygen"),
        "danube",
    }


def test_documents_may_be_passed_in_every_spelling(engine):
    chat = ChatKVPacket(engine=engine, max_tokens=8, options={"ignore_eos": True})
    items = ["oxygen", ("rhine", [0]), Text(NEW), Document("x", NEW), LCDocument(NEW)]
    message = chat.invoke(QUESTION, documents=items)
    answer = engine.generate(
        QUESTION,
        documents=["oxygen", "rhine", Text(NEW), Text(NEW), Text(NEW)],
        max_new_tokens=8,
        ignore_eos=True,
    )
    assert message.content == answer.text


def test_blank_documents_are_left_out(engine):
    message = chat_over(engine, LCDocument(" \n"), LCDocument("")).invoke(QUESTION)
    assert message.response_metadata["documents"] == []


def test_what_our_retriever_found_is_matched_by_content_once_its_document_has_changed(engine):
    found = KVPacketRetriever(engine=engine, k=1).invoke(QUESTION)
    engine.store.ingest([Document("rhine", "Something else.")])
    message = ChatKVPacket(engine=engine, max_tokens=8).invoke(QUESTION, documents=found)
    assert tiers(message) == ["prefill"]


def test_another_namespace_never_hits(engine):
    message = chat_over(
        engine, LCDocument("The Rhine rises in the Alps."), namespace="other"
    ).invoke(QUESTION)
    assert tiers(message) == ["prefill"]


def test_retrieval_takes_metadata_and_how_many(engine):
    retriever = KVPacketRetriever(engine=engine, where={"kind": "gas"})
    assert [d.metadata["document_id"] for d in retriever.invoke("rivers")] == ["oxygen"]
    assert len(KVPacketRetriever(engine=engine).invoke("rivers", k=2)) == 2
