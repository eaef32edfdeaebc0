"""Prefetched packets are in memory with the bits of the store, as many as there is room for."""

import threading

import pytest

from kvpacket_store.api import Engine
from kvpacket_store.errors import CorruptRecordError, NotFoundError, UsageError
from kvpacket_store.types import Document, Text

TEXTS = {"rhine": "The Rhine rises in the Alps.", "elbe": "The Elbe rises in Bohemia."}
LONG = {"max_new_tokens": 4, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    store = new_store(segment_tokens=64)
    store.ingest([Document(i, text) for i, text in TEXTS.items()])
    return store


def tiers(answer):
    return [packet.tier for document in answer.documents for packet in document.packets]


@pytest.mark.parametrize("asked", [{"documents": ["rhine", "elbe"]}, {"question": "Which?"}])
def test_the_next_answer_comes_from_memory_with_the_same_bits(store, asked):
    engine = Engine(store)
    report = engine.prefetch(**asked)
    assert (report.documents, report.packets) == (2, 2)
    assert engine.memory.stats().held_bytes == report.bytes
    answer = engine.generate("Which?", documents=["rhine", "elbe"], **LONG)
    assert tiers(answer) == ["ram", "ram"]
    fresh = Engine(store).generate("Which?", documents=["rhine", "elbe"], **LONG)
    assert answer.token_ids == fresh.token_ids


def test_no_more_is_loaded_than_memory_has_room_for(store):
    one = Engine(store).prefetch(["rhine"]).bytes
    engine = Engine(store, memory_bytes=int(1.5 * one))
    assert engine.prefetch(["rhine", "elbe"]).packets == 1
    assert (engine.memory.stats().held, engine.memory.stats().evicted) == (1, 0)
    assert Engine(store, memory_bytes=0).prefetch(["rhine"]).packets == 0


def test_what_is_damaged_is_left_to_the_answer(store, monkeypatch):
    engine = Engine(store)

    def fail(*_):
        raise CorruptRecordError("flipped")

    monkeypatch.setattr(store.packets, "read_packet", fail)
    engine.prefetch(["rhine"])
    assert engine.memory.stats().held == 0


def test_it_stops_when_told_to(store):
    engine, stop = Engine(store), threading.Event()
    stop.set()
    engine.begin_prefetch(["rhine", "elbe"]).run(stop)
    assert engine.memory.stats().held == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, UsageError),
        ({"documents": ["rhine"], "question": "q"}, UsageError),
        ({"documents": [Text("t")]}, UsageError),
        ({"documents": ["nobody"]}, NotFoundError),
        ({"question": " "}, UsageError),
    ],
)
def test_what_cannot_be_done_is_refused(store, asked, error):
    with pytest.raises(error):
        Engine(store).prefetch(**asked)
