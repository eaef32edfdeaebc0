"""A bounded number runs, a bounded number waits, cancelled work leaves."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kvpacket_store._server.refusals import ShuttingDownError
from kvpacket_store._server.request_record import RequestRecord, at
from kvpacket_store._server.worker import WorkerPool

from kvpacket_store.errors import CancelledError, NotFoundError, UsageError

pytestmark = pytest.mark.anyio


class Held:
    """Work that runs until it is let go, or cancelled."""

    def __init__(self, name="held", log=None):
        self.name, self.log = name, log if log is not None else []
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self, cancelled):
        self.log.append(self.name)
        self.started.set()
        yield "first"
        while not self.go.wait(0.01):
            if cancelled.is_set():
                raise CancelledError("cancelled")
        yield self.name


@pytest.fixture
async def pool():
    pool = WorkerPool("test", running=1, waiting=2)
    yield pool
    await pool.close()


async def test_items_arrive_in_order_and_end(pool):
    work = pool.submit(lambda _: iter(range(5)))
    assert [item async for item in work] == [0, 1, 2, 3, 4]


async def test_an_error_arrives_after_what_came_before(pool):
    def fail(_):
        yield 1
        raise NotFoundError("gone")

    work = pool.submit(fail)
    assert await anext(work) == 1
    with pytest.raises(NotFoundError, match="gone"):
        await anext(work)


async def test_more_than_may_wait_are_refused_and_places_come_free(pool):
    held = Held()
    running = pool.submit(held)
    waiting = [pool.submit(lambda _: ["done"]) for _ in range(2)]
    with pytest.raises(asyncio.QueueFull, match="1 test requests run and 2 wait"):
        pool.submit(lambda _: ["refused"])
    held.go.set()
    assert await running.last() == "held"
    assert [await work.last() for work in waiting] == ["done", "done"]
    assert await pool.submit(lambda _: ["again"]).last() == "again"


async def test_waiting_work_has_its_turn_in_order(pool):
    log = []
    works = [Held(name, log) for name in "abc"]
    submitted = [pool.submit(work) for work in works]
    for work in works:
        work.go.set()
    assert [await one.last() for one in submitted] == ["a", "b", "c"]
    assert log == ["a", "b", "c"]


async def test_keys_have_turns_and_none_fills_the_queue():
    pool = WorkerPool("fair", running=1, waiting=4, waiting_of_key=2)
    log, submitted = [], []

    def submit(key, work):
        with at(RequestRecord("id", key_name=key)):
            submitted.append(pool.submit(work))

    works = [Held(name, log) for name in ("a1", "a2", "a3", "b1")]
    for work in works[:3]:
        submit("a", work)
    with pytest.raises(asyncio.QueueFull, match="2 fair requests of this key wait"):
        submit("a", Held("a4"))
    submit("b", works[3])
    for work in works:
        work.go.set()
    assert [await work.last() for work in submitted] == ["a1", "a2", "a3", "b1"]
    assert log == ["a1", "a2", "b1", "a3"]
    await pool.close()


async def test_waiting_work_that_is_cancelled_never_runs_and_frees_its_place(pool):
    held, other = Held(), Held()
    running = pool.submit(held)
    dropped, kept = pool.submit(other), pool.submit(lambda _: ["kept"])
    pool.cancel(dropped)
    with pytest.raises(CancelledError):
        await dropped.last()
    replacement = pool.submit(lambda _: ["replacement"])
    held.go.set()
    assert [await w.last() for w in (running, kept, replacement)] == ["held", "kept", "replacement"]
    assert not other.started.is_set()


async def test_running_work_that_is_cancelled_ends_and_the_next_begins(pool):
    held = Held()
    running, next_one = pool.submit(held), pool.submit(lambda _: ["next"])
    assert await anext(running) == "first"
    pool.cancel(running)
    with pytest.raises(CancelledError):
        await running.last()
    assert await next_one.last() == "next"


async def test_work_cancelled_on_its_way_to_a_thread_does_not_begin(pool):
    held = Held()
    work = pool.submit(held)
    work.cancelled.set()  # as a client that leaves at once
    with pytest.raises(CancelledError):
        await work.last()


async def test_as_many_run_at_once_as_allowed():
    pool = WorkerPool("pair", running=2, waiting=0)
    meeting = threading.Barrier(2)
    works = [pool.submit(lambda _: [meeting.wait(30)]) for _ in range(2)]
    assert sorted([await work.last() for work in works]) == [0, 1]
    await pool.close()


async def test_closing_lets_what_runs_finish_and_drops_what_waits():
    pool = WorkerPool("closing", running=1, waiting=1)
    held = Held()
    running, waiting = pool.submit(held), pool.submit(lambda _: ["never"])
    closing = asyncio.create_task(pool.close())
    with pytest.raises(ShuttingDownError):
        await waiting.last()
    with pytest.raises(ShuttingDownError):
        pool.submit(lambda _: ["late"])
    assert not closing.done()
    held.go.set()
    await closing
    assert await running.last() == "held"


@pytest.mark.parametrize("limits", [{"running_generations": 0}, {"waiting_ingests": -1}])
async def test_limits_that_bound_nothing_are_refused(limits):
    from kvpacket_store._server import ServerLimits

    with pytest.raises(UsageError, match=next(iter(limits))):
        ServerLimits(**limits)
