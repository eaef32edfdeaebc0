import threading

import numpy as np

from kvpacket_store.codec import scratch as room
from kvpacket_store.codec.scratch import scratch


def test_slots_do_not_overlap_and_memory_is_kept():
    one, two = scratch("word", (3, 4), np.uint16), scratch("other", (12,), np.uint32)
    assert one.shape == (3, 4)
    assert not np.shares_memory(one, two)
    assert np.shares_memory(one, scratch("word", (5,), np.uint8))


def test_threads_do_not_share():
    found = []
    thread = threading.Thread(target=lambda: found.append(scratch("word", (8,), np.uint8)))
    thread.start()
    thread.join()
    assert not np.shares_memory(found[0], scratch("word", (8,), np.uint8))


def test_large_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr(room, "_MAX_KEPT_BYTES", 1000)
    assert scratch("large", (1001,), np.uint8).nbytes == 1001
    assert getattr(room._local, "large", None) is None


def test_nothing_is_an_array_too():
    assert scratch("nothing", (2, 0, 3), np.uint16).shape == (2, 0, 3)
