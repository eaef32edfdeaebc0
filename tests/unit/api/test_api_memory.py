"""Packets in memory: where an answer's packets came from, and never ahead of the store."""

import threading
from dataclasses import replace

import pytest

from kvpacket_store.api import Engine
from kvpacket_store.api.records import make_record
from kvpacket_store.errors import CodecError, CorruptRecordError, NotFoundError
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea."),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(DOCS)
    return store


def tiers(answer):
    return [packet.tier for document in answer.documents for packet in document.packets]


def test_the_second_answer_comes_from_memory_with_the_same_bits(store):
    engine = Engine(store)
    first = engine.generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    again = engine.generate(QUESTION, documents=["elbe", "rhine"], **LONG)
    fresh = Engine(store).generate(QUESTION, documents=["elbe", "rhine"], **LONG)
    assert (tiers(first), tiers(again), tiers(fresh)) == (["disk"] * 2, ["ram"] * 2, ["disk"] * 2)
    assert again.token_ids == fresh.token_ids
    assert again.usage.cached_tokens == fresh.usage.cached_tokens
    assert engine.memory.stats().hit_rate == 0.5


def test_without_memory_everything_comes_from_disk(store):
    engine = Engine(store, memory_bytes=0)
    answers = [engine.generate(QUESTION, documents=["rhine"], **LONG) for _ in range(2)]
    assert [tiers(answer) for answer in answers] == [["disk"], ["disk"]]
    assert engine.memory.stats().held_bytes == 0


def test_memory_stays_within_its_cap(store):
    body_bytes = store.packet("rhine").k.nbytes * 2
    engine = Engine(store, memory_bytes=body_bytes + 1)
    for ids in (["rhine"], ["elbe"], ["rhine", "elbe"]) * 3:
        engine.generate(QUESTION, documents=ids, **LONG)
        assert engine.memory.stats().held_bytes <= body_bytes + 1
    assert engine.memory.stats().evicted > 0


def test_a_deleted_document_is_gone_though_memory_holds_its_packet(store):
    engine = Engine(store)
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    store.delete("rhine")
    with pytest.raises(NotFoundError, match="rhine"):
        engine.generate(QUESTION, documents=["rhine"], **LONG)


def test_another_namespace_does_not_hit_what_memory_holds(store):
    engine = Engine(store)
    store.ingest(DOCS[:1], namespace="other")
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    answer = engine.generate(QUESTION, documents=["rhine"], namespace="other", **LONG)
    assert tiers(answer) == ["disk"]


def test_memory_of_other_kv_than_the_store_holds_now_is_a_miss(store, monkeypatch):
    """Prefilled again on another engine: K and V of the two never mix."""
    engine = Engine(store)
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    manifest = store.packets.get_manifest
    monkeypatch.setattr(
        store.packets, "get_manifest", lambda n, k: replace(manifest(n, k), kv_digest="0" * 64)
    )
    assert tiers(engine.generate(QUESTION, documents=["rhine"], **LONG)) != ["ram"]


def test_memory_of_other_tokens_under_the_same_key_is_a_miss(store, monkeypatch):
    engine = Engine(store)
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    key = store.show("rhine")["packets"][0]["packet_key"]
    manifest = store.packets.get_manifest
    other = manifest("default", key).token_ids[::-1]
    monkeypatch.setattr(store.prefiller, "segment_key", lambda token_ids: key)
    monkeypatch.setattr(
        store.packets, "get_manifest", lambda n, k: replace(manifest(n, k), token_ids=other)
    )
    answer = engine.generate(QUESTION, documents=["rhine"], **LONG)
    assert tiers(answer) == ["prefill"]


def test_answers_at_once_share_one_load(store, monkeypatch):
    engine, reads, all_ask = Engine(store), [], threading.Barrier(4)
    expected = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    read = store.packets.read_packet

    def counted(*args):
        reads.append(args)
        return read(*args)

    monkeypatch.setattr(store.packets, "read_packet", counted)
    answers = []

    def ask():
        all_ask.wait()
        answers.append(engine.generate(QUESTION, documents=["rhine"], **LONG))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1
    assert {tuple(a.token_ids) for a in answers} == {tuple(expected.token_ids)}
    assert sorted(tier for a in answers for tier in tiers(a)) == ["disk", "ram", "ram", "ram"]


def test_a_packet_made_again_is_kept_and_is_no_fallback_the_next_time(store, monkeypatch):
    engine = Engine(store)
    monkeypatch.setattr(store.packets, "read_packet", _raise(CorruptRecordError("flipped")))
    hurt = engine.generate(QUESTION, documents=["rhine"], **LONG)
    again = engine.generate(QUESTION, documents=["rhine"], **LONG)
    assert (tiers(hurt), tiers(again)) == (["prefill"], ["ram"])
    assert again.fallbacks == []
    assert again.token_ids == hurt.token_ids


def _raise(error: CodecError):
    def fail(*_):
        raise error

    return fail


def test_a_record_replaced_while_it_is_read_is_not_held_under_the_digest_of_the_other(
    store, monkeypatch
):
    engine = Engine(store)
    key = store.show("rhine")["packets"][0]["packet_key"]
    tokens = store.packets.get_manifest("default", key).token_ids
    ours = make_record(store, key, tokens, store.prefiller.segment(tokens))
    theirs = make_record(store, key, tokens, store.prefiller.segment(tokens[::-1]))
    read, swapped = store.packets.read_packet, []

    def swap_first(*arguments):
        if not swapped:
            swapped.append(True)
            store.packets.replace_record("default", theirs)
        return read(*arguments)

    monkeypatch.setattr(store.packets, "read_packet", swap_first)
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    store.packets.replace_record("default", ours)
    answer = engine.generate(QUESTION, documents=["rhine"], **LONG)
    assert tiers(answer) == ["disk"]
    expected = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    assert answer.token_ids == expected.token_ids


def test_a_damaged_preamble_is_counted_where_it_is_made_again(store, monkeypatch):
    first = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    warm = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    monkeypatch.setattr(store.packets, "read_shared", _raise(CorruptRecordError("flipped")))
    hurt = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    assert first.usage.cached_tokens < warm.usage.cached_tokens
    assert hurt.usage.cached_tokens == first.usage.cached_tokens
    assert hurt.token_ids == warm.token_ids
