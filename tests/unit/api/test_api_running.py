"""Requests come, run together, and go at any time: each gets what it gets alone, and no other's."""

import threading

import pytest
from running_requests import ASKED, MANY, Heard, engine_of, run_out
from verified_requests import QUESTION

from kvpacket_store.api.running import Running
from kvpacket_store.errors import CancelledError, NotFoundError


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
