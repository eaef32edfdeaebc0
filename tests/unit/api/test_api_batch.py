"""Many requests together: each gets what it gets alone, as many at once as have room."""

import threading
import time

import pytest
from verified_requests import IDS, LONG, QUESTION, ask, begun_of, taken

from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import CancelledError, KVPacketError, UsageError


@pytest.fixture
def store(layered_store):
    return layered_store


@pytest.fixture
def engine(layered_engine):
    return layered_engine


REQUESTS = [
    {"question": QUESTION, **LONG, "decode": "full"},
    {"question": "And the Elbe?", "documents": ["elbe"], "max_new_tokens": 9, "ignore_eos": True},
    {"question": QUESTION, **LONG, "decode": "verified"},
    {"question": QUESTION, **LONG, "decode": "verified", "compressor": "base*snapkv:0.5"},
    {"question": "x", "documents": IDS, "max_new_tokens": 20, "temperature": 0.8, "seed": 3},
    {"question": QUESTION, "documents": ["nobody"]},
    {"question": QUESTION, **LONG, "decode": "verified", "consistency": "recompute"},
]


@pytest.mark.parametrize("share", [None, 3.0])
def test_many_together_get_what_each_gets_alone(engine, share):
    whole = begun_of(engine, SwapPolicy(turns=taken())).exact.whole_bytes
    memory_bytes = None if share is None else int(share * whole)
    found = engine.generate_many(REQUESTS, memory_bytes=memory_bytes)
    for request, answer in zip(REQUESTS, found, strict=True):
        if request["documents"] == ["nobody"]:
            assert isinstance(answer, KVPacketError)
            continue
        assert answer.token_ids == engine.generate(**request).token_ids
        assert answer.timings_ms.total >= answer.timings_ms.first_token


def test_three_times_as_many_run_at_once_on_drafts(engine):
    from kvpacket_store.api.batch import Batch

    whole = begun_of(engine, SwapPolicy(turns=taken())).exact.whole_bytes
    largest = {}
    for decode in ("full", "verified"):
        request = {"question": QUESTION, **LONG, "max_new_tokens": 6, "decode": decode}
        if decode == "verified":
            request["compressor"] = "base*streaming:0.1*int8"
        batch = Batch(engine, memory_bytes=int(4.5 * whole))
        answers = batch.run([request] * 16)
        largest[decode] = batch.largest
        assert {tuple(a.token_ids) for a in answers} == {tuple(answers[0].token_ids)}
    assert largest["full"] == 4
    assert largest["verified"] >= 12


def test_a_batch_names_what_is_no_request_and_takes_iterators_once(engine):
    good = {"question": QUESTION, **LONG, "documents": IDS}
    plain = engine.generate(**good).token_ids
    again = [{**good, "documents": iter(IDS)} for _ in range(3)]
    found = engine.generate_many([{"documents": IDS}, "nothing", *again], memory_bytes=1000)
    assert all(isinstance(error, UsageError) for error in found[:2])
    assert [answer.token_ids for answer in found[2:]] == [plain] * 3
    with pytest.raises(UsageError, match="memory_bytes"):
        engine.generate_many([good], memory_bytes=-1)


def test_under_a_limit_requests_take_turns(engine):
    """Nobody's first token waits for the end of another."""
    request = {"question": QUESTION, **LONG, "decode": "verified", "compressor": "base*noise:2"}
    answers = engine.generate_many([request] * 3, memory_bytes=1 << 30)
    firsts = [answer.timings_ms.first_token for answer in answers]
    assert max(firsts) < min(answer.timings_ms.total for answer in answers)
    assert len({tuple(answer.token_ids) for answer in answers}) == 1


@pytest.mark.parametrize("memory_bytes", [None, 1 << 30])
def test_a_cancelled_request_whose_kv_are_on_their_way_holds_up_no_other(engine, memory_bytes):
    cancel, shut = threading.Event(), threading.Event()
    engine.decoder.policy = SwapPolicy(link=lambda _: shut.wait(60))
    stuck = {"question": QUESTION, **LONG, "decode": "verified", "cancel": cancel}
    free = {"question": QUESTION, **LONG, "decode": "full"}
    threading.Timer(0.5, cancel.set).start()
    started = time.monotonic()
    found = engine.generate_many([stuck, free], memory_bytes=memory_bytes)
    assert time.monotonic() - started < 40  # the link is still shut
    shut.set()
    assert isinstance(found[0], CancelledError)
    assert found[1].token_ids == ask(engine, decode="full").token_ids
