"""A store that is full: packets give way to others, documents and answers do not."""

import pytest

from kvpacket_store.api import Engine, Store
from kvpacket_store.errors import NotFoundError, StoreFullError
from kvpacket_store.types import Document

QUESTION = "Where does the river flow?"
SHORT = {"max_new_tokens": 4, "ignore_eos": True}
CAP_BYTES = 3 << 20


def river(number):
    """About 500 tokens: 256 kB of K and V on the tiny model."""
    return Document(f"river {number}", f"River {number} flows to sea {number * 7}. " * 18)


@pytest.fixture
def store(new_store):
    return new_store(segment_tokens=512, codec="raw", max_bytes=CAP_BYTES)


def fill(store, first=0):
    """Ingest one by one until packets had to give way; return how many documents there are."""
    count = first
    while not store.packets.stats().evicted_packets:
        store.ingest([river(count)])
        count += 1
        assert count < first + 100, "nothing was ever evicted"
    return count


def is_held(store, number):
    key = store.show(f"river {number}")["packets"][0]["packet_key"]
    return store.packets.has_packet("default", key)


def test_what_was_used_least_recently_gives_way_and_answers_stay_the_same(store):
    store.ingest([river(0), river(1), river(2)])
    before = {i: Engine(store).generate(QUESTION, [f"river {i}"], **SHORT) for i in (0, 1, 2)}
    Engine(store).generate(QUESTION, ["river 0"], **SHORT)  # 1 is now the oldest
    fill(store, first=3)
    assert not is_held(store, 1)
    assert is_held(store, 0) or not is_held(store, 2)
    for i, answer in before.items():
        again = Engine(store).generate(QUESTION, [f"river {i}"], **SHORT)
        assert again.token_ids == answer.token_ids
        assert store.show(f"river {i}")["text"] == river(i).text
    assert store.stats().file_bytes <= CAP_BYTES
    assert store.verify(deep=True).damaged == []


def test_an_evicted_packet_is_a_fallback_that_says_so_and_is_put_back(store):
    fill(store)
    assert not is_held(store, 0)
    answer = Engine(store).generate(QUESTION, ["river 0"], **SHORT)
    assert answer.documents[0].packets[0].tier == "prefill"
    assert "evicted" in answer.fallbacks[0].reason
    assert is_held(store, 0)
    assert Engine(store).generate(QUESTION, ["river 0"], **SHORT).fallbacks == []


def test_ingesting_again_does_not_prefill_what_gave_way(store):
    count = fill(store)
    report = store.ingest([river(i) for i in range(count)])
    assert report.documents.unchanged == count
    assert report.packets.added == 0


def test_a_pinned_document_keeps_its_packets(store):
    store.ingest([river(0)])
    store.pin("river 0")
    fill(store, first=1)
    assert is_held(store, 0)
    store.unpin("river 0")
    with pytest.raises(NotFoundError):
        store.pin("nowhere")


def test_one_ingest_does_not_evict_what_it_has_itself_filed(store):
    with pytest.raises(StoreFullError):
        store.ingest([river(i) for i in range(60)])
    assert store.packets.stats().evicted_packets == 0
    held = [document.id for document in store.list().documents]
    assert held
    assert store.verify(deep=True).damaged == []
    store.ingest([river(100)])  # the next one may
    assert store.packets.stats().evicted_packets > 0


def test_a_store_that_cannot_be_written_answers(store, tmp_path, tiny_model, word_embedder):
    store.ingest([river(0)])
    expected = Engine(store).generate(QUESTION, ["river 0"], **SHORT)
    store.close()
    opened = Store.open(
        store.path, model=tiny_model("llama"), embedder=word_embedder, read_only=True
    )
    with opened:
        engine = Engine(opened)
        assert engine.generate(QUESTION, ["river 0"], **SHORT).token_ids == expected.token_ids
        assert engine.generate(QUESTION, top_k=1, **SHORT).documents[0].id == "river 0"
        assert opened.list().documents[0].id == "river 0"
        assert opened.verify(deep=True).damaged == []


def test_the_index_beside_the_packets_keeps_under_the_cap(store):
    count = fill(store)
    assert len(Engine(store).generate(QUESTION, top_k=3, **SHORT).documents) >= 1
    assert store.stats().file_bytes <= CAP_BYTES
    fill_more = [river(i) for i in range(count, count + 3)]
    store.ingest(fill_more)
    Engine(store).generate(QUESTION, top_k=3, **SHORT)
    assert store.stats().file_bytes <= CAP_BYTES


def test_an_index_without_room_is_not_kept_and_answers_come_all_the_same(store, monkeypatch):
    store.ingest([river(0)])
    monkeypatch.setattr(store.packets, "spare_bytes", lambda: 100)
    assert Engine(store).generate(QUESTION, top_k=1, **SHORT).documents[0].id == "river 0"
    assert list((store.path / "index").iterdir()) == []
