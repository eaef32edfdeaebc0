"""Texts that come with a question: filed where the caller says so."""

import numpy as np
import pytest

from kvpacket_store import Document, Text
from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.errors import (
    DocumentError,
    ReadOnlyError,
)

RHINE = "The Rhine rises in the Alps. It flows to the North Sea."
NOVEL = "\n\n".join(f"Paragraph {i} says that {i} and {i} are {2 * i}." for i in range(20))
DOCS = [Document("rhine", RHINE), Document("novel", NOVEL)]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture
def engine(new_store):
    rows = np.random.default_rng(0).normal(0, 0.3, (50, 64))
    store = new_store(segment_tokens=64, adapter=Adapter.untrained(rows, num_tokens=4))
    store.ingest(DOCS)
    return Engine(store, memory_bytes=0)


def packets_of(answer):
    return [packet for document in answer.documents for packet in document.packets]


@pytest.mark.parametrize(
    "item", [Text("Filed at last."), Document("own", "Filed at last.", {"a": 1})]
)
def test_what_is_to_be_kept_is_prefilled_once_and_filed(engine, monkeypatch, item):
    prefill, calls = engine.store.prefiller.segment, []

    def counted(token_ids):
        calls.append(token_ids)
        return prefill(token_ids)

    monkeypatch.setattr(engine.store.prefiller, "segment", counted)
    first = engine.generate(QUESTION, documents=[item], keep=True, **LONG)
    assert [packet.tier for packet in packets_of(first)] == ["prefill"]
    again = engine.generate(QUESTION, documents=[item], keep=True, **LONG)
    assert [packet.tier for packet in packets_of(again)] == ["disk"]
    document_id = first.documents[0].id
    by_id = engine.generate(QUESTION, documents=[document_id], **LONG)
    assert len(calls) == 1
    assert first.token_ids == again.token_ids == by_id.token_ids
    shown = engine.store.show(document_id)
    assert (shown["text"], shown["metadata"]) == ("Filed at last.", dict(item.metadata))
    assert engine.generate("Filed", top_k=1, **LONG).documents[0].id == document_id
    assert engine.store.verify(deep=True, recompute=5).damaged == []


def test_a_chunk_of_a_stored_document_is_not_filed_beside_it(engine):
    before = [entry.id for entry in engine.store.list().documents]
    ref = engine.store.packets.get_document("default", "novel").segments[1]
    chunk = NOVEL[ref.start_char : ref.end_char]
    answer = engine.generate(QUESTION, documents=[Text(chunk)], keep=True, **LONG)
    assert packets_of(answer)[0].packet_key == ref.packet_key
    assert [entry.id for entry in engine.store.list().documents] == before


@pytest.mark.parametrize("options", [{}, {"consistency": "recompute"}, {"decode": "verified"}])
def test_what_is_kept_is_the_packet_that_an_ingest_makes(engine, new_store, options):
    text = Text(NOVEL.replace("Paragraph", "Chapter"))
    answer = engine.generate(QUESTION, documents=[text], keep=True, **LONG, **options)
    other = new_store(name="other.kvps", segment_tokens=64, adapter=engine.store.adapter)
    other.ingest([Document(answer.documents[0].id, text.text)])
    for index in range(len(answer.documents[0].packets)):
        kept, ingested = (
            s.packet(answer.documents[0].id, index=index) for s in (engine.store, other)
        )
        assert kept.key == ingested.key
        assert np.array_equal(kept.k, ingested.k)
        assert np.array_equal(kept.v, ingested.v)


def test_nothing_is_kept_where_nothing_can_be_written(engine, tmp_path):
    from kvpacket_store import Store

    path, model, embedder = engine.store.path, engine.store.model, engine.store.embedder
    engine.store.close()
    with Store.open(path, model=model, embedder=embedder, read_only=True) as store:
        asked = Engine(store)
        with pytest.raises(ReadOnlyError, match="without keep"):
            asked.generate(QUESTION, documents=[Text("x")], keep=True, **LONG)
        assert asked.generate(QUESTION, documents=[Text("x")], **LONG).token_ids


def test_many_together_get_what_each_gets_alone(layered_engine):
    kinds = [{"decode": "full"}, {"decode": "verified"}, {"consistency": "recompute"}]
    requests = [
        {"question": QUESTION, "documents": [Text(f"Text number {i}."), "elbe"], **LONG, **kind}
        for i, kind in enumerate(kinds * 2)
    ]
    alone = [layered_engine.generate(**request).token_ids for request in requests]
    kept = [{**request, "keep": True} for request in requests]
    for asked, memory_bytes in ((requests, 1 << 20), (kept, None)):
        found = layered_engine.generate_many(asked, memory_bytes=memory_bytes)
        assert [answer.token_ids for answer in found] == alone
    ids = [entry.id for entry in layered_engine.store.list().documents]
    assert sum(document_id.startswith("text-") for document_id in ids) == len(requests)


def test_two_texts_of_one_id_are_refused_where_they_are_to_be_kept(engine):
    two = [Document("same", "One."), Document("same", "Two.")]
    assert len(engine.generate(QUESTION, documents=two, **LONG).documents) == 2
    with pytest.raises(DocumentError, match="same"):
        engine.generate(QUESTION, documents=two, keep=True, **LONG)
    repeated = [Document("twice", "One.")] * 2
    assert len(engine.generate(QUESTION, documents=repeated, keep=True, **LONG).documents) == 2
