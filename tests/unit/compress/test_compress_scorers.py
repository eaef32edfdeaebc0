"""Scores against readable loops, and what each scorer cannot do without."""

from dataclasses import replace

import pytest
import torch

from kvpacket_store.compress import parse_compressor
from kvpacket_store.compress.observed import observed_attention
from kvpacket_store.compress.scorers import (
    expected_scores,
    h2o_scores,
    keydiff_scores,
    random_scores,
    scissorhands_scores,
    snapkv_scores,
    streaming_scores,
    tova_scores,
)
from kvpacket_store.errors import UsageError


def attention_reference(prompt, layer, query_head, row):
    """One row of one query head: the slots it sees, and how much it looks at each."""
    group = prompt.queries.shape[1] // prompt.k.shape[1]
    rows = prompt.queries.shape[2]
    seen = prompt.num_slots - rows + row + 1
    k = prompt.k[layer, query_head // group, :seen].double()
    q = prompt.queries[layer, query_head, row].double()
    weights = torch.zeros(prompt.num_slots, dtype=torch.float64)
    weights[:seen] = (k @ q * prompt.scaling).softmax(0)
    return weights


def attention_rows(prompt, layer, head):
    """``[G, Q, T]`` of one kv head."""
    group = prompt.queries.shape[1] // prompt.k.shape[1]
    return torch.stack(
        [
            torch.stack(
                [
                    attention_reference(prompt, layer, head * group + member, row)
                    for row in range(prompt.queries.shape[2])
                ]
            )
            for member in range(group)
        ]
    )


@pytest.fixture
def prompt(new_prompt):
    return new_prompt(30, recent=5)


def close(got, wanted):
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-6)


def test_attention_is_causal_and_grouped(prompt):
    got = observed_attention(prompt.queries[1], prompt.k[1], prompt.scaling)
    assert got.shape == (2, 3, 5, 30)
    for head in range(2):
        close(got[head], attention_rows(prompt, 1, head))


def test_snapkv_is_the_smoothed_mean_with_the_window_on_top(prompt):
    got = snapkv_scores(prompt)
    for head in range(2):
        mean = attention_rows(prompt, 2, head)[..., :25].mean(dim=(0, 1))
        wanted = torch.tensor([mean[max(at - 2, 0) : at + 3].sum() / 5 for at in range(25)])
        close(got[2, head, :25], wanted.double())
    assert (got[..., 25:] > got[..., :25].max()).all()


def test_tova_is_the_last_row_over_all_heads_of_a_layer(prompt):
    got = tova_scores(prompt)
    last = torch.stack([attention_reference(prompt, 0, head, 4) for head in range(6)]).mean(0)
    for head in range(2):
        close(got[0, head, :29], last[:29])
    assert (got[..., 29] > got[..., :29].amax()).all()


def test_h2o_divides_by_the_rows_that_see_a_slot(prompt):
    got = h2o_scores(prompt)
    for head in range(2):
        attention = attention_rows(prompt, 1, head)
        wanted = [
            attention[:, :, at].sum() / 3 / sum(30 - 5 + row >= at for row in range(5))
            for at in range(30)
        ]
        close(got[1, head], torch.stack(wanted))


def test_scissorhands_counts_rows_that_look_more_than_evenly(prompt):
    got = scissorhands_scores(prompt)
    for head in range(2):
        attention = attention_rows(prompt, 1, head)
        even = 1 / torch.arange(26, 31)
        wanted = (attention > even[:, None]).sum(dim=(0, 1))
        assert got[1, head].tolist() == wanted.tolist()


def test_keydiff_keeps_the_odd_one_out(prompt):
    k = prompt.k.clone()
    k[:, :, 11] = -k[:, :, 11].sign() * k.mean(dim=2).abs()
    scores = keydiff_scores(replace(prompt, k=k))
    assert (scores.argmax(dim=-1) == 11).all()


def test_expected_attention_is_plain_attention_for_one_query(prompt):
    one = replace(prompt, queries=prompt.queries[:, :, -1:])
    got = expected_scores(one)
    for head in range(2):
        wanted = attention_rows(one, 2, head)[:, 0].mean(0) * prompt.v[2, head].double().norm(dim=1)
        close(got[2, head], wanted)


def test_streaming_keeps_sinks_and_the_newest(new_prompt):
    prompt = new_prompt(40, first=3, recent=0)
    plan = parse_compressor("streaming:0.25").plan(prompt)
    assert plan.positions[1, 1].tolist() == [0, 1, 2, *range(33, 40)]
    assert streaming_scores(prompt).shape == (3, 2, 40)


def test_random_depends_on_the_position_alone(new_prompt):
    long, short = random_scores(new_prompt(1000, seed=1))[0, 0], random_scores(new_prompt(300))
    assert torch.equal(long[:300], short[2, 1])
    assert long.unique().numel() == 1000
    halves = long.view(2, 500) > long.median()
    assert 200 < int(halves[0].sum()) < 300


@pytest.mark.parametrize("name", ["snapkv", "tova", "h2o", "scissorhands", "expected"])
def test_without_queries_attention_cannot_be_judged(prompt, name):
    with pytest.raises(UsageError, match=r"question's queries.*knorm"):
        parse_compressor(f"{name}:0.5").plan(replace(prompt, queries=None))


def test_without_importance_it_cannot_be_judged_by(prompt):
    with pytest.raises(UsageError, match="importance"):
        parse_compressor("importance:0.5").plan(replace(prompt, importance=None))


def test_by_importance_the_needed_slots_stay(prompt):
    importance = torch.zeros(3, 2, 30)
    importance[..., 7], importance[0, 1, 9] = 2.0, 1.0
    plan = parse_compressor("importance:0.4").plan(replace(prompt, importance=importance))
    assert plan.positions[0, 1].tolist() == [0, 1, 2, 3, 4, 7, 9, 25, 26, 27, 28, 29]
