"""The RAM tier: its cap, its order, and one load for all who ask."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.memory import MemoryTier


def value(nbytes):
    return np.zeros(nbytes, np.uint8)


def test_a_value_is_loaded_once():
    tier, loads = MemoryTier(100), []

    def load():
        loads.append(1)
        return value(10)

    first, was_held = tier.get("a", load)
    again, is_held = tier.get("a", load)
    assert (was_held, is_held) == (False, True)
    assert again is first
    assert len(loads) == 1
    assert tier.stats().hit_rate == 0.5


def test_the_least_recently_used_leaves_first():
    tier = MemoryTier(30)
    for key in "abc":
        tier.get(key, lambda: value(10))
    tier.get("a", lambda: value(10))
    tier.get("d", lambda: value(10))
    assert [tier.get(key, lambda: value(10))[1] for key in "acd"] == [True, True, True]
    assert tier.get("b", lambda: value(10))[1] is False


def test_what_is_larger_than_the_cap_is_handed_on():
    tier = MemoryTier(10)
    tier.get("a", lambda: value(5))
    large, _ = tier.get("b", lambda: value(11))
    assert large.nbytes == 11
    assert tier.get("a", lambda: value(5))[1] is True


def test_all_who_ask_meanwhile_share_one_load():
    tier, loads, started, go_on = MemoryTier(0), [], threading.Event(), threading.Event()

    def load():
        loads.append(1)
        started.set()
        assert go_on.wait(10)
        return value(10)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(tier.get, "a", load)
        assert started.wait(10)
        others = [pool.submit(tier.get, "a", load) for _ in range(7)]
        while any(not other.running() for other in others):
            pass
        waiting = tier._loads["a"].done
        while len(waiting._cond._waiters) < 7:
            pass
        go_on.set()
        values = [first.result()[0], *(other.result()[0] for other in others)]
    assert len(loads) == 1
    assert all(one is values[0] for one in values)


def test_a_failed_load_is_only_its_callers():
    tier, failures = MemoryTier(100), []

    def fail():
        failures.append(1)
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        tier.get("a", fail)
    assert tier.get("a", lambda: value(3))[0].nbytes == 3
    assert len(failures) == 1


def test_those_who_waited_for_a_failed_load_try_themselves():
    tier, started, go_on = MemoryTier(100), threading.Event(), threading.Event()

    def fail():
        started.set()
        assert go_on.wait(10)
        raise ValueError("damaged")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tier.get, "a", fail)
        assert started.wait(10)
        second = pool.submit(tier.get, "a", lambda: value(3))
        go_on.set()
        with pytest.raises(ValueError, match="damaged"):
            first.result()
        assert second.result()[0].nbytes == 3


@given(
    st.integers(0, 50),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 20), st.booleans()), max_size=60),
)
def test_the_cap_holds_and_the_sizes_add_up(max_bytes, steps):
    tier = MemoryTier(max_bytes)
    for key, nbytes, is_forgotten in steps:
        got, _ = tier.get(key, lambda nbytes=nbytes: value(nbytes))
        assert got is not None
        if is_forgotten:
            tier.forget(key)
        stats = tier.stats()
        assert stats.held_bytes == sum(held.nbytes for held in tier._values.values())
        assert stats.held_bytes <= max_bytes
    assert tier.stats().hits + tier.stats().misses == len(steps)
    tier.clear()
    assert tier.stats().held_bytes == 0
