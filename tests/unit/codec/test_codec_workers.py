import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kvpacket_store.codec import decode, encode, workers
from kvpacket_store.codec.workers import for_each

MUCH = 1 << 30


@pytest.fixture(params=[0, MUCH], ids=["here", "pool"])
def num_bytes(request, monkeypatch):
    monkeypatch.setattr(workers, "_num_threads", lambda: 4)
    return request.param


def test_every_item_once(num_bytes):
    seen = []
    for_each(seen.append, range(1000), num_bytes=num_bytes)
    assert sorted(seen) == list(range(1000))


def test_no_items(num_bytes):
    for_each(pytest.fail, [], num_bytes=num_bytes)


def test_an_error_is_raised_when_nothing_runs_any_more(num_bytes):
    running, begun = [], []

    def task(item):
        begun.append(item)
        running.append(item)
        if item == 3:
            raise ValueError("three")
        time.sleep(0.001)
        running.remove(item)

    with pytest.raises(ValueError, match="three"):
        for_each(task, range(10_000), num_bytes=num_bytes)
    assert running == [3]
    assert len(begun) < 1000, "what had not begun was to be left"


def test_index_errors_of_a_task_are_not_the_end_of_the_items(num_bytes):
    with pytest.raises(IndexError):
        for_each(lambda item: [][item], range(10), num_bytes=num_bytes)


def test_little_work_stays_in_this_thread():
    threads = set()
    for_each(lambda _: threads.add(threading.get_ident()), range(10), num_bytes=1)
    assert threads == {threading.get_ident()}


def test_many_callers_share_the_pool():
    rng = np.random.default_rng(0)
    pairs = [rng.integers(0, 65536, (2, 4, 3, 100, 64), dtype=np.uint16) for _ in range(8)]

    def round_trip(pair):
        return np.array_equal(np.stack(decode(encode(*pair, kv_dtype="bf16"))), pair)

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(round_trip, pairs * 3))
