"""An answer depends on the packets alone: not on who asks beside it, nor on memory."""

import threading

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.assemble import place
from kvpacket_store.errors import CorruptRecordError, NotFoundError
from kvpacket_store.types import Document

pytestmark = pytest.mark.conformance

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea."),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
    Document("oxygen", "Oxygen is a gas. Plants give it off in daylight."),
]
IDS = [document.id for document in DOCS]
QUESTION = "Where does the Rhine rise?"
NUM_TOKENS = 10
LONG = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True}


@pytest.fixture(params=["no adapter", "adapter"])
def store(new_store, request):
    soft = Adapter.untrained(np.random.default_rng(0).normal(0, 0.3, (50, 64)), num_tokens=4)
    made = new_store(segment_tokens=32, adapter=soft if request.param == "adapter" else None)
    made.ingest(DOCS)
    return made


def answer_without_store(store, ids):
    """Prefill every segment, put the K and V side by side, and decode one token a step."""
    model, prefiller, prompt = store.model, store.prefiller, Engine(store).prompt
    bodies = [
        prefiller.segment(segment.token_ids)
        for document in DOCS
        if document.id in ids
        for segment in store.segments(document)
    ]
    parts = [prefiller.preamble(prompt.preamble_ids)]
    for body in bodies:
        parts += [prefiller.header(), body]
    question = prompt.question_ids(QUESTION)
    start = sum(part.k.shape[2] for part in parts)
    cache = model.new_cache(start + len(question) + NUM_TOKENS)
    at = 0
    for part in parts:
        place(model, cache, part.k, part.v, kv_dtype=store.kv_dtype, start=at)
        at += part.k.shape[2]
    cache.set_length(at)
    logits, step = model.forward(question, cache)[-1], model.row_step(cache)
    tokens = []
    for _ in range(NUM_TOKENS):
        tokens.append(int(logits.argmax()))
        logits = step(tokens[-1])
    return tokens


def test_four_equal_requests_give_what_the_same_kv_gives_without_a_store(store):
    expected = answer_without_store(store, IDS)
    engine = Engine(store)
    for _ in range(4):
        assert engine.generate(QUESTION, documents=IDS, **LONG).token_ids == expected


@pytest.mark.parametrize("memory", ["none", "one packet", "plenty"])
def test_eight_at_once_give_the_sequential_answers_with_little_memory(store, memory):
    body_bytes = 2 * store.packet("rhine").k.nbytes
    memory_bytes = {"none": 0, "one packet": body_bytes, "plenty": 1 << 30}[memory]
    wanted = [["rhine"], ["elbe"], ["oxygen"], IDS, IDS[::-1], IDS[1:], ["rhine", "rhine"], IDS]
    plain = Engine(store, memory_bytes=0)
    expected = [plain.generate(QUESTION, documents=ids, **LONG).token_ids for ids in wanted]
    engine = Engine(store, memory_bytes=memory_bytes)
    found, together = [None] * len(wanted), threading.Barrier(len(wanted))

    def ask(i):
        together.wait()
        found[i] = engine.generate(QUESTION, documents=wanted[i], **LONG).token_ids

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    assert engine.memory.stats().held_bytes <= memory_bytes


@pytest.mark.parametrize("error", [CorruptRecordError("flipped"), NotFoundError("gone")])
def test_each_packet_in_turn_fails_to_load_and_no_hole_is_decoded(store, monkeypatch, error):
    expected = answer_without_store(store, IDS)
    keys = [p["packet_key"] for name in IDS for p in store.show(name)["packets"]]
    assert len(keys) > len(IDS)
    read = store.packets.read_packet
    for lost in keys:

        def failing(namespace, key, token_ids=None, lost=lost):
            if key == lost:
                raise error
            return read(namespace, key, token_ids)

        monkeypatch.setattr(store.packets, "read_packet", failing)
        answer = Engine(store).generate(QUESTION, documents=IDS, **LONG)
        assert answer.token_ids == expected
        assert [fallback.packet_key for fallback in answer.fallbacks] == [lost]


def test_an_allocation_that_fails_gives_no_partial_answer(store, monkeypatch):
    engine, body = Engine(store), PacketLoader._body
    calls = []

    def failing(self, namespace, key, recover):
        calls.append(key)
        if len(calls) == 2:
            raise MemoryError
        return body(self, namespace, key, recover)

    monkeypatch.setattr(PacketLoader, "_body", failing)
    with pytest.raises(MemoryError):
        engine.generate(QUESTION, documents=IDS, **LONG)
    assert engine.generate(QUESTION, documents=IDS, **LONG).token_ids == answer_without_store(
        store, IDS
    )
