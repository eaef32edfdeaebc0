"""Answers: the same with every store, exact usage, and a damaged packet costs time, never truth."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.errors import (
    CorruptRecordError,
    NotFoundError,
)
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea.", {"kind": "river"}),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea.", {"kind": "river"}),
    Document("oxygen", "Oxygen is a gas. Plants give it off in daylight.", {"kind": "gas"}),
]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 12, "ignore_eos": True}


def soft():
    return Adapter.untrained(np.random.default_rng(0).normal(0, 0.3, (50, 64)), num_tokens=4)


ADAPTERS = {"none": None, "soft": soft(), "left behind": replace(soft(), header_stays=False)}


@pytest.fixture(params=ADAPTERS)
def engine(new_store, request):
    store = new_store(segment_tokens=64, adapter=ADAPTERS[request.param])
    store.ingest(DOCS)
    return Engine(store)


def test_usage_counts_what_ran_and_what_did_not(engine):
    ids = [d.id for d in DOCS]
    first = engine.generate(QUESTION, documents=ids, **LONG)
    again = engine.generate(QUESTION, documents=ids, **LONG)
    segment_tokens = sum(p.tokens for d in first.documents for p in d.packets)
    preamble = len(engine.prompt.preamble_ids)
    question = len(engine.prompt.question_ids(QUESTION))
    assert first.usage.prompt_tokens == preamble + segment_tokens + question
    assert first.usage.cached_tokens == segment_tokens
    assert again.usage.cached_tokens == segment_tokens + preamble
    adapter = engine.store.adapter
    per_packet = adapter.header_slots + adapter.trailer_tokens
    num_packets = sum(len(d.packets) for d in first.documents)
    assert first.usage.adapter_tokens == per_packet * num_packets
    assert first.usage.completion_tokens == 12 == len(first.token_ids)
    assert first.token_ids == again.token_ids


def test_documents_two_and_three_skip_prefill_in_any_order(engine, monkeypatch):
    engine.generate(QUESTION, documents=["rhine"], **LONG)
    rows = []
    forward = engine.store.model.forward

    def counted(inputs, cache, **options):
        rows.append(len(inputs))
        return forward(inputs, cache, **options)

    monkeypatch.setattr(engine.store.model, "forward", counted)
    monkeypatch.setattr(engine.store.model, "capture", lambda *a: pytest.fail("prefilled"))
    for ids in (["rhine", "elbe", "oxygen"], ["oxygen", "rhine", "elbe"]):
        rows.clear()
        engine.generate(QUESTION, documents=ids, **LONG)
        # the question in one forward; single rows go their own way and are one each by nature
        assert rows == [len(engine.prompt.question_ids(QUESTION))]


def test_four_equal_requests_give_four_equal_answers_and_so_does_a_fresh_engine(engine):
    answers = [engine.generate(QUESTION, documents=["rhine", "elbe"], **LONG) for _ in range(4)]
    fresh = Engine(engine.store).generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    assert {tuple(a.token_ids) for a in [*answers, fresh]} == {tuple(fresh.token_ids)}


def test_parallel_requests_give_the_sequential_answers(engine):
    wanted = [["rhine"], ["elbe"], ["oxygen"], ["rhine", "oxygen"]] * 2
    sequential = [engine.generate(QUESTION, documents=ids, **LONG).token_ids for ids in wanted]
    found = [None] * len(wanted)

    def run(i):
        found[i] = engine.generate(QUESTION, documents=wanted[i], **LONG).token_ids

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == sequential


def damage(engine, document_id, monkeypatch, error):
    """Make the record of a document's first packet unreadable, with no copy of it in memory."""
    engine.memory.clear()
    key = engine.store.show(document_id)["packets"][0]["packet_key"]
    read = engine.store.packets.read_packet

    def failing(namespace, packet_key, token_ids=None):
        if packet_key == key:
            raise error
        return read(namespace, packet_key, token_ids)

    monkeypatch.setattr(engine.store.packets, "read_packet", failing)
    return key


@pytest.mark.parametrize("error", [CorruptRecordError("flipped"), NotFoundError("gone")])
def test_a_damaged_packet_costs_time_never_truth(engine, monkeypatch, error):
    ids = ["rhine", "elbe", "oxygen"]
    sound = engine.generate(QUESTION, documents=ids, **LONG)
    key = damage(engine, "elbe", monkeypatch, error)
    hurt = engine.generate(QUESTION, documents=ids, **LONG)
    assert hurt.token_ids == sound.token_ids
    assert [f.packet_key for f in hurt.fallbacks] == [key]
    used = hurt.documents[1].packets[0]
    assert (used.tier, used.fell_back) == ("prefill", True)
    assert hurt.usage.prompt_tokens - hurt.usage.cached_tokens > used.tokens


def test_a_fallback_repairs_the_packet(engine, monkeypatch):
    damage(engine, "elbe", monkeypatch, CorruptRecordError("flipped"))
    engine.generate(QUESTION, documents=["elbe"], **LONG)
    monkeypatch.undo()
    answer = engine.generate(QUESTION, documents=["elbe"], **LONG)
    assert answer.fallbacks == []
    assert engine.store.packets.check(deep=True) == []


def test_other_tokens_under_the_same_key_are_a_miss(engine, monkeypatch):
    """A forced collision: the manifest says other tokens than the key stands for."""
    from dataclasses import replace

    sound = engine.generate(QUESTION, documents=["rhine"], **LONG)
    manifest = engine.store.packets.get_manifest

    def other(namespace, key):
        found = manifest(namespace, key)
        return replace(found, token_ids=found.token_ids[::-1])

    monkeypatch.setattr(engine.store.packets, "get_manifest", other)
    answer = engine.generate(QUESTION, documents=["rhine"], **LONG)
    assert answer.token_ids == sound.token_ids
    assert "other tokens" in answer.fallbacks[0].reason


def test_retrieval_finds_the_document_and_filters_on_metadata(engine):
    answer = engine.generate(QUESTION, top_k=2, **LONG)
    assert answer.documents[0].id == "rhine"
    assert answer.documents[0].score > answer.documents[1].score
    gas = engine.generate(QUESTION, top_k=5, where={"kind": "gas"}, **LONG)
    assert [d.id for d in gas.documents] == ["oxygen"]


def test_a_deleted_document_disappears_from_answers_at_once(engine):
    assert engine.generate(QUESTION, top_k=1, **LONG).documents[0].id == "rhine"
    engine.store.delete("rhine")
    assert "rhine" not in [d.id for d in engine.generate(QUESTION, top_k=5, **LONG).documents]
    with pytest.raises(NotFoundError, match="rhine"):
        engine.generate(QUESTION, documents=["rhine"])


def test_another_namespace_sees_nothing(engine):
    engine.store.ingest([Document("own", "Something else.")], namespace="other")
    found = engine.generate(QUESTION, namespace="other", **LONG).documents
    assert [d.id for d in found] == ["own"]
    with pytest.raises(NotFoundError):
        engine.generate(QUESTION, documents=["rhine"], namespace="other")


def test_no_document_one_document_and_repeats(engine):
    for ids in ([], ["rhine"], ["rhine", "rhine", "rhine"]):
        answer = engine.generate(QUESTION, documents=ids, **LONG)
        assert [d.id for d in answer.documents] == ids


def test_recompute_is_the_joint_prefill_of_the_same_tokens(engine):
    answer = engine.generate(QUESTION, documents=["rhine"], consistency="recompute", **LONG)
    model = engine.store.model
    count = len(engine.store.show("rhine")["packets"])
    segments = [engine.store.packet("rhine", index=i).token_ids for i in range(count)]
    ids = (*engine.prompt.preamble_ids, *sum(segments, ()), *engine.prompt.question_ids(QUESTION))
    cache = model.new_cache(len(ids) + 12)
    logits = model.forward(ids, cache)[-1]
    expected = []
    for _ in range(12):
        expected.append(int(logits.argmax()))
        logits = model.forward((expected[-1],), cache)[-1]
    assert answer.token_ids == expected
    assert answer.usage.cached_tokens == answer.usage.adapter_tokens == 0
    assert answer.usage.prompt_tokens == len(ids)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
def test_a_cache_for_transformers_generate_gives_the_engines_answer(engine):
    answer = engine.generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    cache, input_ids = engine.assemble(QUESTION, documents=["rhine", "elbe"])
    hf = engine.store.model.hf
    with torch.inference_mode():
        out = hf.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            past_key_values=cache,
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=None,
        )
    assert out[0, input_ids.shape[1] :].tolist() == answer.token_ids


def test_streaming_gives_the_same_text_in_whole_characters(engine):
    whole = engine.generate(QUESTION, documents=["rhine"], **LONG)
    pieces = list(engine.stream(QUESTION, documents=["rhine"], **LONG))
    assert "".join(p.text for p in pieces) == whole.text
    assert [p.answer is None for p in pieces] == [True] * (len(pieces) - 1) + [False]


def test_stop_strings_end_the_answer_before_them(engine):
    options = {"documents": ["rhine"], "max_new_tokens": 40, "ignore_eos": True}
    free = engine.generate(QUESTION, **options)
    stop = next(c for c in free.text[3:] if c.isprintable())
    cut = engine.generate(QUESTION, stop=stop, **options)
    assert cut.text == free.text[: free.text.index(stop)]
    assert cut.decode.finish_reason == "stop"
    assert free.decode.finish_reason == "length"


def test_equal_seeds_give_equal_answers(engine):
    options = {"documents": ["rhine"], "temperature": 1.0, **LONG}
    first = engine.generate(QUESTION, **options)
    assert engine.generate(QUESTION, seed=first.decode.seed, **options).token_ids == first.token_ids
    others = {tuple(engine.generate(QUESTION, seed=s, **options).token_ids) for s in range(5)}
    assert len(others) > 1


def test_packets_of_another_recipe_are_prefilled_again_and_left_as_they_are(engine, monkeypatch):
    from kvpacket_store.prefill import prefiller

    ids = ["rhine", "elbe", "oxygen"]
    sound = engine.generate(QUESTION, documents=ids, **LONG)
    keys = [manifest.packet_key for manifest in engine.store.packets.iter_packets("default")]
    monkeypatch.setattr(prefiller, "PREFILL_RECIPE", "alone-2")
    for _ in range(2):
        answer = Engine(engine.store).generate(QUESTION, documents=ids, **LONG)
        assert answer.token_ids == sound.token_ids
        assert sorted(fallback.packet_key for fallback in answer.fallbacks) == sorted(keys)
    monkeypatch.undo()
    assert Engine(engine.store).generate(QUESTION, documents=ids, **LONG).fallbacks == []
