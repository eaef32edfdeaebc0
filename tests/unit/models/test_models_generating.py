"""The library's generate on packets: kernels for single rows, and nothing else is changed."""

import copy

import pytest
import torch

from kvpacket_store.models import for_generate

IDS = (5, 9, 3, 7)


@pytest.fixture
def prompted(model):
    """A function: a cache with a prompt in it, made for generate or not."""

    def make(*, for_it):
        cache = model.new_cache(16)
        if for_it:
            for_generate(model, cache)
        model.forward(IDS, cache)
        return cache

    yield make
    model.hf.__dict__.pop("forward", None)


def step(model, cache, **named):
    with torch.inference_mode():
        return model.hf(input_ids=torch.tensor([[11]]), cache=cache, use_cache=True, **named)


@pytest.fixture
def rows(model, monkeypatch):
    """How many single rows went through the kernels."""
    taken, row_step = [], model.row_step
    monkeypatch.setattr(model, "row_step", lambda cache: taken.append(1) or row_step(cache))
    return taken


def test_a_single_row_gets_the_kernels_bits(model, prompted, rows):
    expected = model.row_step(prompted(for_it=False))(11)
    rows.clear()
    cache = prompted(for_it=True)
    output = step(model, cache)
    assert torch.equal(output.logits[0, 0], expected)
    assert output.cache is cache
    assert cache.length == len(IDS) + 1
    assert len(rows) == 1


@pytest.mark.parametrize(
    "named",
    [
        {"labels": torch.tensor([[7]])},
        {"attention_mask": torch.tensor([[0, 1, 1, 1, 1]])},
        {"position_ids": torch.tensor([[9]])},
    ],
)
def test_whatever_else_is_wanted_goes_through_the_library(model, prompted, rows, named):
    step(model, prompted(for_it=True), **named)
    assert rows == []


def test_other_caches_go_through_the_library(model, prompted, rows):
    prompted(for_it=True)
    step(model, prompted(for_it=False))
    assert rows == []


def test_it_is_put_in_once(model, prompted):
    prompted(for_it=True)
    forward = model.hf.forward
    prompted(for_it=True)
    assert model.hf.forward is forward


def test_a_copy_of_the_model_runs_itself_and_leaves_nothing_on_the_original(model):
    for_generate(model, model.new_cache(4))
    other = copy.deepcopy(model.hf)
    with torch.no_grad():
        other.lm_head.weight.zero_()
    ids = torch.tensor([[5, 6, 7]])
    other.set_attn_implementation("eager")
    found = other(input_ids=ids, output_attentions=True, use_cache=False)
    assert found.attentions[0].shape[-1] == 3
    assert not found.logits.any()
    assert model.hf(input_ids=ids, use_cache=False).logits.any()
    assert model.rows_are_alike
