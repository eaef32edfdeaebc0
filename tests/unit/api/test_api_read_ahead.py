"""The next packets are read while one is placed: in order, at once, and never more than a few."""

import os
import threading

import pytest

from kvpacket_store.api.read_ahead import ReadAhead
from kvpacket_store.errors import CorruptRecordError


def test_in_the_order_of_the_keys():
    with ReadAhead(str, range(50)) as ahead:
        assert [ahead.take() for _ in range(50)] == [str(i) for i in range(50)]


def test_no_keys():
    with ReadAhead(str, []) as ahead:
        assert ahead.take() is None


def test_what_cannot_be_read_is_none_and_the_rest_goes_on():
    def read(key):
        if key == 1:
            raise CorruptRecordError("damaged")
        return key

    with ReadAhead(read, [1, 2, 1, 3]) as ahead:
        assert [ahead.take() for _ in range(4)] == [None, 2, None, 3]


def test_a_fault_of_ours_is_not_swallowed():
    def read(key):
        raise ZeroDivisionError

    with ReadAhead(read, [1]) as ahead, pytest.raises(ZeroDivisionError):
        ahead.take()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core reads one packet at a time")
def test_two_at_once():
    both = threading.Barrier(2, timeout=60)

    def read(key):
        both.wait()  # passes only when another thread is here as well
        return key

    with ReadAhead(read, [1, 2]) as ahead:
        assert [ahead.take(), ahead.take()] == [1, 2]


def test_few_are_held():
    begun = []
    with ReadAhead(lambda key: begun.append(key) or key, range(100)) as ahead:
        for _ in range(10):
            ahead.take()
    assert len(begun) <= 10 + 1 + min(os.cpu_count() or 1, 4)


def test_leaving_early_waits_for_what_runs_and_starts_nothing_more():
    begun, ended = [], []

    def read(key):
        begun.append(key)
        ended.append(key)

    with pytest.raises(KeyboardInterrupt), ReadAhead(read, range(100)):
        raise KeyboardInterrupt
    assert begun == ended
    assert len(begun) < 10
