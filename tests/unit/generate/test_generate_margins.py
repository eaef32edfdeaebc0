"""How sure a choice is: no change of the logits below half the margin changes it."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.generate import Choice, Sampler

CUTS = [(0, 1.0), (5, 1.0), (0, 0.9), (50, 0.9), (0, 0.01), (3, 0.999), (10**9, 0.5), (1, 0.3)]


def rows(count, vocabulary=4096, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, vocabulary, generator=generator) * 3


def test_greedy_margins_are_gaps():
    assert Sampler(0.0).choose(torch.tensor([1.0, 4.0, 3.5]), 0) == Choice(1, 0.5)
    assert Sampler(0.0).choose(torch.tensor([4.0, 1.0, 4.0]), 0) == Choice(0, 0.0)
    assert Sampler(0.0).choose(torch.tensor([4.0]), 0) == Choice(0, inf)
    assert Sampler(0.0).choose(torch.tensor([4.0, -inf]), 0) == Choice(0, inf)
    # the best always stays in: cuts change nothing
    cut = Sampler(0.0, top_k_tokens=1, top_p=0.1)
    assert cut.choose(torch.tensor([1.0, 4.0, 3.5]), 0) == Choice(1, 0.5)


def test_the_margin_with_temperature_is_the_gap_of_scores_in_logits():
    logits = rows(1, 50)[0]
    for position in range(20):
        choice = Sampler(0.5, seed=4).choose(logits, position)
        bits = np.random.Philox(key=4, counter=[0, 0, 0, position])
        noise = np.random.Generator(bits).gumbel(size=50)
        best, second = np.sort(logits.double().numpy() / 0.5 + noise)[[-1, -2]]
        assert choice.margin == pytest.approx(0.5 * (best - second), abs=1e-6)


def test_with_one_token_left_the_margin_is_that_of_the_cut():
    logits = torch.tensor([1.0, 4.0, 3.5])
    for position in range(20):
        choice = Sampler(1.0, 3, top_k_tokens=1).choose(logits, position)
        assert choice == Choice(1, pytest.approx(0.5))


@pytest.mark.parametrize("spread", [0.3, 3.0])
@pytest.mark.parametrize(("top_k", "top_p"), [*CUTS, (8, 0.7), (0, 0.5)])
@pytest.mark.parametrize("penalty", [1.0, 1.4, 0.6])
def test_no_change_below_half_the_margin_changes_the_choice(spread, top_k, top_p, penalty):
    """The promise of `Choice.margin`, on random changes and on ones aimed at the choice."""
    rng = np.random.default_rng(7)
    options = {"top_k_tokens": top_k, "top_p": top_p, "repetition_penalty": penalty}
    for position in range(12):
        logits = torch.from_numpy(rng.normal(0, spread, 40)).float()
        sampler, previous = Sampler(0.8, seed=5, **options), [1, 7, 20]
        choice = sampler.choose(logits, position, previous)
        assert choice.margin >= 0
        step = max(0.0, 0.4999 * min(choice.margin, 10.0) - 1e-5)  # float32 rounds
        for attempt in range(40):
            change = rng.choice([-1.0, 0.0, 1.0], 40) if attempt % 2 else aimed(rng, choice, logits)
            moved = logits + torch.from_numpy(step * change).float()
            assert sampler.pick(moved, position, previous) == choice.token_id


def aimed(rng, choice, logits):
    """Against the choice: it falls, those above some level rise, the others fall."""
    change = np.where(logits.numpy() > rng.choice(logits.numpy()), 1.0, -1.0)
    change[rng.integers(40)] = 1.0
    change[choice.token_id] = -1.0
    return change


def test_margins_are_not_needlessly_small():
    """With the usual cuts one choice in ten at most is nearer than 0.05 to another."""
    logits = rows(200, seed=2)
    for cuts in ({}, {"top_k_tokens": 50}, {"top_p": 0.9}, {"top_k_tokens": 50, "top_p": 0.9}):
        sampler = Sampler(0.8, seed=1, **cuts)
        near = sum(sampler.choose(row, i).margin < 0.05 for i, row in enumerate(logits))
        assert near <= 20, cuts


@pytest.mark.parametrize(
    "extreme",
    [
        {"temperature": 1e-310, "top_k_tokens": 3},
        {"temperature": 1e-310, "top_p": 0.5},
        {"temperature": 1e-310, "top_p": 1e-310},
        {"temperature": 1e-310},
        {"temperature": 0.5, "top_p": 1 - 2**-53},
        {"temperature": 0.5, "repetition_penalty": 1e-310},
        {"temperature": 0.0, "repetition_penalty": 1e-310},
        {"temperature": 1e300, "top_k_tokens": 2, "top_p": 0.5},
        {"temperature": 0.5, "repetition_penalty": 1e300, "top_p": 0.9},
    ],
    ids=str,
)
def test_extremes_choose_something_and_are_not_sure_of_it(extreme):
    for row in rows(5, 100):
        choice = Sampler(seed=1, **extreme).choose(row, 3, [1, 2])
        assert 0 <= choice.token_id < 100
        assert choice.margin >= 0
        if 0 < extreme["temperature"] < 1e-300:
            assert choice == Choice(int(row.argmax()), 0.0)


@given(st.lists(st.sampled_from([-inf, -3.0, 0.0, 1.0, 1.5]), min_size=1, max_size=30), st.data())
def test_masked_and_tied_logits_are_no_trouble(values, data):
    logits = torch.tensor([*values, 0.5])
    sampler = Sampler(
        data.draw(st.sampled_from([0.0, 0.7])),
        seed=data.draw(st.integers(0, 99)),
        top_k_tokens=data.draw(st.integers(0, 40)),
        top_p=data.draw(st.sampled_from([0.2, 0.9, 1.0])),
        repetition_penalty=data.draw(st.sampled_from([1.0, 1.2])),
    )
    choice = sampler.choose(logits, 4, [0])
    assert logits[choice.token_id] > -inf
    assert choice.margin >= 0
    assert sampler.pick(logits, 4, [0]) == choice.token_id
