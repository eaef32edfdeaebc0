"""What runs together keeps within the memory, and what fails for one request ends it alone."""

import threading

import pytest
from running_requests import MANY, Heard, engine_of, swapping
from verified_requests import IDS, QUESTION

from kvpacket_store.api.request import new_request
from kvpacket_store.api.running import Running
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import CancelledError, UsageError


@pytest.fixture
def engine(new_store):
    return engine_of(new_store)


@pytest.mark.parametrize(
    ("drafts", "limit", "most_running"),
    [
        ({"decode": "full"}, 2.5, 2),
        ({"decode": "verified", "compressor": "exact"}, 5.0, 2),
        ({"decode": "verified", "compressor": "base"}, 3.2, 2),
        ({"decode": "verified", "consistency": "recompute"}, 5.0, 2),
    ],
)
def test_what_runs_keeps_within_the_memory(new_store, pack_of, drafts, limit, most_running):
    engine = swapping(new_store, pack_of)
    asked = {"documents": IDS, "max_new_tokens": 12, "ignore_eos": True, **drafts}
    request = new_request(QUESTION, **asked)
    exact_bytes = engine.needs(request.query, request.options).exact_bytes
    running = Running(engine, int(limit * exact_bytes))
    heard = [Heard(running, **asked) for _ in range(5)]
    most = 0
    while running.num_unfinished:
        running.step()
        most = max(most, running.held_bytes)
    assert running.largest == most_running
    assert exact_bytes < most <= limit * exact_bytes
    assert running.held_bytes == 0
    assert len({tuple(one.answer.token_ids) for one in heard}) == 1


def test_one_that_leaves_the_queue_leaves_its_turn_to_those_that_run(layered_engine):
    is_open = threading.Event()
    layered_engine.decoder.policy = SwapPolicy(link=lambda _: is_open.wait(60))
    running = Running(layered_engine, 1 << 30)
    asked = {"documents": IDS, "max_new_tokens": 20, "ignore_eos": True, "decode": "verified"}
    runs = Heard(running, **asked, compressor="base*noise:2")
    running.step()
    waits = Heard(running, **asked)
    running.step()  # it cannot begin while the other's exact K and V come, and is next to
    running.cancel(waits.request)
    is_open.set()
    for _ in range(2000):
        running.step()
    assert len(runs.answer.token_ids) == 20


def test_memory_that_is_short_for_one_swap_ends_that_request_alone(new_store, pack_of, monkeypatch):
    engine = swapping(new_store, pack_of)
    plain = engine.generate(QUESTION, **MANY[0])
    running = Running(engine)
    drafted = {"decode": "verified", "compressor": "base"}
    swapped, other = Heard(running, **MANY[2], **drafted), Heard(running, **MANY[0])
    running.step()
    [swap] = [d.begun.swap for d in running._decoded.values() if d.begun.swap]

    def short():
        raise MemoryError("no room for the exact K and V")

    monkeypatch.setattr(swap, "may_begin", short)
    monkeypatch.setattr(swap, "fetch", short)
    for _ in range(200):
        running.step()
    assert isinstance(swapped.error, MemoryError)
    assert other.answer.token_ids == plain.token_ids
    assert running.num_unfinished == 0


def test_what_fails_while_a_request_joins_is_told_to_it(engine, monkeypatch):
    running = Running(engine)

    def broken():
        raise RuntimeError("no kernels")

    monkeypatch.setattr(running, "_new_together", broken)
    heard = Heard(running, **MANY[1])
    running.step()
    assert "no kernels" in str(heard.error)
    assert running.num_unfinished == 0


def test_one_that_is_being_tried_when_nothing_new_may_begin_ends(engine, monkeypatch):
    running = Running(engine)

    def closing(request, others):
        running.close()

    monkeypatch.setattr(running._admission, "begin", closing)  # it has no room, and is put back
    heard = Heard(running, **MANY[1])
    running.step()
    assert isinstance(heard.error, CancelledError)


@pytest.mark.parametrize("name", ["exact+exact", "base+lookup+base", "exact+int8+int4+fp8"])
def test_a_chain_of_drafts_has_an_end(engine, name):
    with pytest.raises(UsageError, match="3 different ones"):
        engine.generate(QUESTION, **{**MANY[1], "compressor": name})
