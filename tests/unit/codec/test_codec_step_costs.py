"""Bits of a base are shared out where they save most harm."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpacket_store.codec import BASE_STEPS
from kvpacket_store.codec.packs import installed_packs
from kvpacket_store.codec.step_costs import DEFAULT_BASE_BITS, StepCosts, installed_costs
from kvpacket_store.errors import CorruptRecordError, UsageError

BITS = np.tile([3.4, 2.5, 1.8], (2, 3, 1))


def costs_of(harm):
    """Costs of three layers: harm of σ/4 and σ/2 of each layer's K, then V."""
    coarse = np.array(harm, float).reshape(2, 3, 2)
    return StepCosts("p" * 64, np.concatenate([np.zeros((2, 3, 1)), coarse], axis=2), BITS)


def harm_of(costs, steps):
    names = [*BASE_STEPS]
    at = [
        (side, layer, names.index(s)) for layer, p in enumerate(steps) for side, s in enumerate(p)
    ]
    return sum(costs.harm[place] for place in at)


def test_what_harms_most_is_finest():
    costs = costs_of([[[0, 0], [0, 0], [0, 1]], [[5, 9], [0, 0], [1, 8]]])
    steps = costs.steps_within(2.4)
    assert steps[1] == ("sigma/2", "sigma/2")
    assert steps[0] == ("sigma/2", "sigma/8")
    assert costs.bits_of(steps) <= 2.4


@given(harm=st.lists(st.floats(0, 1), min_size=12, max_size=12), bits=st.floats(1.8, 3.5))
@settings(max_examples=60, deadline=None)
def test_it_is_near_the_best_and_never_takes_more_bits(harm, bits):
    costs = costs_of(np.maximum.accumulate(np.reshape(harm, (2, 3, 2)), axis=2))
    steps = costs.steps_within(bits)
    assert costs.bits_of(steps) <= bits + 1e-9
    names = [*BASE_STEPS]
    possible = [
        [(a, b) for a, b in zip(flat[:3], flat[3:], strict=True)]
        for flat in itertools.product(names, repeat=6)
    ]
    allowed = [one for one in possible if costs.bits_of(one) <= bits + 1e-9]
    best = min(harm_of(costs, one) for one in allowed)
    assert harm_of(costs, steps) <= best + 2.0  # the last upgrade that does not fit, at most


def test_more_bits_never_harm_more():
    harm = np.random.default_rng(0).random((2, 3, 2)).cumsum(axis=2)
    costs = costs_of(harm)
    found = [harm_of(costs, costs.steps_within(bits)) for bits in (1.8, 2.2, 2.6, 3.0, 3.4)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


def test_fewer_bits_than_the_coarsest_base_takes_are_refused():
    with pytest.raises(UsageError, match=r"the coarsest takes 1\.80"):
        costs_of(np.zeros(12)).steps_within(1.7)
    with pytest.raises(UsageError):
        costs_of(np.zeros(12)).steps_within(float("nan"))


def test_costs_come_back_from_their_file():
    costs = costs_of(np.arange(12) / 1000)
    back = StepCosts.from_json(costs.to_json())
    assert back.to_dict() == costs.to_dict()


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"base_steps": ["sigma/8"]}', "\udcff".encode("utf-8", "replace")]
)
def test_what_are_no_costs_is_refused(text):
    with pytest.raises(CorruptRecordError, match="kvps codec steps"):
        StepCosts.from_json(text)


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 4, 2), (3, 4, 3), (4, 3)])
def test_arrays_of_other_shapes_are_refused(shape):
    with pytest.raises(UsageError, match="every step"):
        StepCosts("", np.zeros(shape), np.zeros(shape))


def test_costs_ship_for_the_shipped_pack_and_no_other():
    [pack] = installed_packs()
    costs = installed_costs(pack.digest)
    assert costs.harm.shape[1] == pack.shape.layers
    assert costs.bits_of(costs.steps_within(DEFAULT_BASE_BITS)) <= DEFAULT_BASE_BITS
    assert installed_costs("0" * 64) is None
