"""How long drafts are: alone, and for one of many that share forwards."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.generate import Costs, FixedHorizon, Horizon

# SmolLM2 at 2,100 slots on two cores: a step takes 39 ms, 32 for weights, a further row 5
LOOKUP = Costs(draft=0.0, row=0.127, shared=0.81)
shares = st.floats(0.0, 0.8)


@st.composite
def costs(draw):
    shared, draft = draw(shares), draw(st.floats(0.0, 1.0))
    return Costs(
        draft=draft,
        row=draw(st.floats(0.01, 0.2)),
        shared=shared,
        draft_shared=min(shared, draft),
    )


@pytest.mark.property
@given(costs(), st.integers(1, 64), st.integers(1, 64))
def test_a_crowd_of_crowds_is_one(costs, few, more):
    there, at_once = costs.among(few).among(more), costs.among(few * more)
    assert there.row == pytest.approx(at_once.row)
    assert there.draft == pytest.approx(at_once.draft, abs=1e-9)
    assert at_once.speedup(0.5, 0) == pytest.approx(1.0)  # a plain step stays the unit


@pytest.mark.property
@given(costs(), st.lists(st.booleans(), max_size=60), st.integers(1, 64))
def test_no_draft_is_expected_to_lose(costs, outcomes, requests):
    horizon = Horizon(costs)
    for is_right in outcomes:
        horizon.learn(1, int(is_right))
    count = horizon.count(requests)
    assert costs.among(requests).speedup(horizon._share, count) >= 1 - 1e-9


def test_what_pays_alone_may_not_in_company():
    horizon = Horizon(LOOKUP, start=0.3, most=10)
    counts = [horizon.count(requests) for requests in (1, 2, 4, 8)]
    assert counts[0] > 0 == counts[-1]
    assert all(more <= fewer for fewer, more in pairwise(counts))


def test_what_is_nearly_always_right_pays_in_any_company():
    horizon = Horizon(LOOKUP, start=0.95, most=10)
    assert horizon.count(64) > 0
    assert FixedHorizon(3).count(64) == 3


def test_it_looks_again_now_and_then():
    horizon = Horizon(LOOKUP, start=0.0)
    assert sum(horizon.count(8) for _ in range(160)) == 10


def test_close_choices_end_a_draft_until_they_turn_out_right():
    horizon = Horizon(LOOKUP)
    assert horizon.ends_at_close_ones
    for _ in range(5):  # wrong before the close one: that says nothing of it
        horizon.learn(proposed=4, accepted=1, close_at=3)
    assert horizon.ends_at_close_ones
    for _ in range(12):
        horizon.learn(proposed=4, accepted=4, close_at=3)
    assert not horizon.ends_at_close_ones
    for _ in range(12):  # drafts go on over them now, and they turn out wrong
        horizon.learn(proposed=9, accepted=3, close_at=3)
    assert horizon.ends_at_close_ones
    assert not FixedHorizon(3).ends_at_close_ones


def test_what_is_expected_is_what_the_best_length_gives():
    horizon = Horizon(LOOKUP, start=0.9, most=10)
    best = horizon.count()
    assert horizon.gain() == max(LOOKUP.speedup(0.9, n) for n in range(11))
    assert horizon.gain() == LOOKUP.speedup(0.9, best)
    assert horizon.gain(8) < horizon.gain()
    assert FixedHorizon(3).gain(8) == 0.0
