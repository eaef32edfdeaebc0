"""Requests come, run together, and go at any time: each gets what it gets alone, and no other's."""

import threading

import pytest
from verified_requests import DOCS, IDS, QUESTION

from kvpacket_store.api import Engine
from kvpacket_store.api.request import new_request
from kvpacket_store.api.running import Running
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import CancelledError, NotFoundError, UsageError

ASKED = {"documents": ["elbe"], "ignore_eos": True}
MANY = [
    {**ASKED, "max_new_tokens": 20},
    {**ASKED, "max_new_tokens": 3, "temperature": 0.9, "seed": 4},
    {"documents": IDS, "max_new_tokens": 12, "temperature": 1.3, "seed": 1, "ignore_eos": True},
    {**ASKED, "max_new_tokens": 9, "exactness": "bit"},
    {**ASKED, "max_new_tokens": 16, "decode": "verified", "compressor": "int8", "draft_tokens": 3},
    {"documents": [], "max_new_tokens": 7, "ignore_eos": True},
]


class Heard:
    """What one request was told."""

    def __init__(self, running, question=QUESTION, **asked):
        self.pieces, self.error = [], None
        self.request = new_request(question, **asked)
        running.add(self.request, self)

    def __call__(self, given):
        assert not self.is_over, "an end is told once"
        if isinstance(given, Exception):
            self.error = given
        else:
            self.pieces.append(given)

    @property
    def answer(self):
        return self.pieces[-1].answer if self.pieces else None

    @property
    def is_over(self):
        return self.error is not None or self.answer is not None

    @property
    def text(self):
        return "".join(piece.text for piece in self.pieces if not piece.provisional)


def run_out(running):
    while running.num_unfinished:
        running.step()


def engine_of(new_store, kind="llama", **options):
    store = new_store(kind, segment_tokens=64)
    store.ingest(DOCS)
    return Engine(store, **options)


@pytest.fixture
def engine(new_store):
    return engine_of(new_store)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])  # gemma3: rows are not alike
def test_those_that_come_while_others_run_get_what_each_gets_alone(new_store, kind):
    engine = engine_of(new_store, kind)
    alone = [engine.generate(QUESTION, **asked) for asked in MANY]
    running = Running(engine, most_begun_a_step=1)
    heard = [Heard(running, **asked) for asked in MANY[:2]]
    for _ in range(2):
        running.step()

    def come():
        heard.extend(Heard(running, **asked) for asked in MANY[2:])

    thread = threading.Thread(target=come)
    thread.start()
    thread.join()
    run_out(running)
    assert running.largest >= 4
    for one, expected in zip(heard, alone, strict=True):
        assert one.answer.token_ids == expected.token_ids
        assert one.text == one.answer.text == expected.text
        assert one.answer.usage.completion_tokens == expected.usage.completion_tokens
        assert one.answer.usage.prompt_tokens == expected.usage.prompt_tokens


def test_what_fails_or_is_cancelled_ends_alone(engine):
    running = Running(engine)
    stays, leaves = (Heard(running, **{**ASKED, "max_new_tokens": 20}) for _ in range(2))
    absent = Heard(running, documents=["nobody"])
    breaks = Heard(running, "And the Rhine?", **ASKED, max_new_tokens=20)
    for _ in range(4):
        running.step()
    leaves_with = len(leaves.pieces)
    running.cancel(leaves.request)
    decoded = next(d for d in running._decoded.values() if d.request is breaks.request)
    decoded.begun.answering.sampler = None  # its next choice is an AttributeError
    running.step()
    assert isinstance(leaves.error, CancelledError)
    assert len(leaves.pieces) == leaves_with
    assert isinstance(breaks.error, AttributeError)
    assert isinstance(absent.error, NotFoundError)
    assert running.num_running == running.num_unfinished == 1
    run_out(running)
    alone = engine.generate(QUESTION, **ASKED, max_new_tokens=20)
    assert stays.answer.token_ids == alone.token_ids


def test_a_shared_forward_that_fails_ends_those_in_it_and_no_later_one(engine, monkeypatch):
    running = Running(engine)
    heard = [Heard(running, **ASKED, max_new_tokens=9) for _ in range(2)]
    running.step()
    with monkeypatch.context() as broken:
        broken.setattr(running._together, "_run", lambda works: 1 / 0)
        running.step()
    assert all(isinstance(one.error, ZeroDivisionError) for one in heard)
    later = Heard(running, **ASKED, max_new_tokens=9)
    run_out(running)
    assert len(later.answer.token_ids) == 9


def test_who_waits_is_cancelled_at_once_and_a_close_cancels_all_that_wait(engine):
    running = Running(engine, most=1)
    first, *waiting = (Heard(running, **ASKED, max_new_tokens=5) for _ in range(3))
    running.step()
    assert (running.num_running, running.num_waiting) == (1, 2)
    running.cancel(waiting[0].request)
    assert isinstance(waiting[0].error, CancelledError)
    assert not waiting[1].is_over
    running.close()
    assert isinstance(waiting[1].error, CancelledError)
    late = Heard(running, **ASKED)
    assert isinstance(late.error, CancelledError)
    run_out(running)
    assert len(first.answer.token_ids) == 5


def test_those_that_run_get_a_step_between_two_prompts(engine):
    running = Running(engine, most_begun_a_step=1)
    for _ in range(4):
        Heard(running, **ASKED, max_new_tokens=20)
    running.step()
    answering = next(iter(running._decoded.values())).begun.answering
    seen = []
    for _ in range(3):
        running.step()
        seen.append((running.num_running, len(answering.token_ids)))
    assert [num for num, _ in seen] == [2, 3, 4]
    assert [count for _, count in seen] == [2, 3, 4]


def test_a_piece_comes_before_the_forward_that_follows_it(engine, monkeypatch):
    running = Running(engine)
    heard = Heard(running, **ASKED, max_new_tokens=4)
    together, seen = running._new_together(), []
    monkeypatch.setattr(running, "_new_together", lambda: together)
    run = together._run
    monkeypatch.setattr(together, "_run", lambda works: seen.append(len(heard.text)) or run(works))
    run_out(running)
    assert seen[0] > 0
    assert len(seen) == 3


def test_one_that_a_stop_string_ended_costs_no_more_forwards(engine, monkeypatch):
    text = engine.generate(QUESTION, **ASKED, max_new_tokens=20).text
    running = Running(engine)
    together, shared = running._new_together(), []
    monkeypatch.setattr(running, "_new_together", lambda: together)
    run = together._run
    monkeypatch.setattr(together, "_run", lambda works: shared.append(len(works)) or run(works))
    stopped = Heard(running, **ASKED, max_new_tokens=20, stop=text[4])
    stays = Heard(running, **ASKED, max_new_tokens=20)
    run_out(running)
    assert stopped.answer.decode.finish_reason == "stop"
    assert stays.answer.text == text
    num_shared = len(stopped.answer.token_ids) - 1
    assert shared == [2] * num_shared + [1] * (19 - num_shared)


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


def test_answers_are_audited_once_they_are_given(new_store):
    engine = engine_of(new_store, audit=1.0)
    running = Running(engine)
    heard = [Heard(running, **ASKED, max_new_tokens=4) for _ in range(2)]
    Heard(running, documents=["nobody"])
    Heard(running, **ASKED, max_new_tokens=4, consistency="recompute")
    audit, given = engine.auditor.audit, []

    def audited(*args):
        given.append([one.is_over for one in heard])
        audit(*args)

    engine.auditor.audit = audited
    run_out(running)
    assert given == [[True, True]] * 2
    assert (engine.auditor.totals.requests, engine.auditor.totals.tokens) == (2, 8)


def test_an_audit_that_fails_harms_nobody(new_store, caplog):
    engine = engine_of(new_store, audit=1.0)
    engine.auditor.audit = lambda *_: 1 / 0
    running = Running(engine)
    heard = [Heard(running, **ASKED, max_new_tokens=n) for n in (2, 6)]
    run_out(running)
    assert [len(one.answer.token_ids) for one in heard] == [2, 6]
    assert "an audit failed" in caplog.text


def swapping(new_store, pack_of):
    store = new_store(
        codec="linear", layers=None, kv_dtype="bf16", codec_pack=pack_of(), segment_tokens=64
    )
    store.ingest(DOCS)
    return Engine(store, memory_bytes=0)


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
