"""Sampling, options and the plain loop."""

import threading

import pytest
import torch

from kvpacket_store.errors import CancelledError, UsageError
from kvpacket_store.generate import (
    Answering,
    GenerationOptions,
    Sampler,
    decode_alone,
    plain_decoding,
)

PROMPT = tuple(range(40, 70))


def run(model, options, cancel=None, eos_ids=None, forwards=None):
    cache = model.new_cache(len(PROMPT) + options.max_new_tokens)
    logits = model.forward(PROMPT, cache)[-1]
    eos_ids = model.eos_ids if eos_ids is None else eos_ids
    answering = Answering(Sampler.of(options), options, PROMPT, eos_ids, cancel)
    decoding = plain_decoding(answering, cache, logits)
    events = decode_alone(decoding, forwards or model.row_forward())
    return (event.token_id for event in events)


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.5}], ids=["plain", "penalty"])
def test_greedy_decoding_gives_what_transformers_generate_gives(any_model, options):
    asked = GenerationOptions(max_new_tokens=24, ignore_eos=True, **options)
    ours = list(run(any_model, asked))
    any_model.hf.set_attn_implementation("eager")
    try:
        out = any_model.hf.generate(
            torch.tensor([PROMPT]),
            attention_mask=torch.ones(1, len(PROMPT)),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            **options,
        )
    finally:
        any_model.hf.set_attn_implementation("kvpacket")
    assert ours == out[0, len(PROMPT) :].tolist()


def test_ties_break_to_the_lowest_id():
    logits = torch.zeros(1000)
    logits[[700, 300, 900]] = 5.0
    assert Sampler(0.0).pick(logits, 0) == 300


def test_noise_belongs_to_seed_and_position():
    logits = torch.linspace(0, 1, 500)
    picks = [Sampler(1.0, seed=9).pick(logits, position) for position in range(40)]
    again = Sampler(1.0, seed=9)
    assert [again.pick(logits, position) for position in reversed(range(40))] == picks[::-1]
    other = Sampler(1.0, seed=10)
    assert [other.pick(logits, position) for position in range(40)] != picks


def test_samples_follow_the_softmax():
    """4,000 draws of four tokens: each share within 0.03 (4 standard deviations)."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    for temperature in (0.7, 1.5):
        sampler = Sampler(temperature, seed=1)
        picks = torch.tensor([sampler.pick(logits, position) for position in range(4000)])
        shares = torch.bincount(picks, minlength=4) / 4000
        assert torch.allclose(shares, torch.softmax(logits / temperature, 0), atol=0.03)


def test_without_a_seed_one_is_drawn_and_can_be_used_again():
    sampler = Sampler(1.0)
    logits = torch.zeros(1000)
    assert Sampler(1.0, sampler.seed).pick(logits, 3) == sampler.pick(logits, 3)


def test_end_of_sequence_ends_and_is_not_part_of_the_answer(model):
    free = list(run(model, GenerationOptions(max_new_tokens=30, ignore_eos=True)))
    eos = frozenset({free[7]})
    cut = free.index(free[7])
    tokens = list(run(model, GenerationOptions(max_new_tokens=30), eos_ids=eos))
    assert tokens == free[:cut]


def test_cancelling_stops_before_the_next_step(model):
    cancel = threading.Event()
    steps, forwards = [], model.row_forward()

    def counted(works):
        steps.append(works)
        return forwards(works)

    options = GenerationOptions(max_new_tokens=30, ignore_eos=True)
    tokens = run(model, options, cancel, frozenset(), counted)
    next(tokens)
    next(tokens)
    cancel.set()
    with pytest.raises(CancelledError):
        list(tokens)
    assert len(steps) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"max_new_tokens": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"seed": -1},
        {"sampling_top_k": -1},
        {"sampling_top_k": 2.0},
        {"sampling_top_k": True},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_p": float("nan")},
        {"top_p": "1"},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
        {"repetition_penalty": float("nan")},
        {"repetition_penalty": None},
        {"decode": "fast"},
        {"exactness": "exact"},
        {"consistency": "both"},
    ],
)
def test_options_are_checked_at_the_door(bad):
    with pytest.raises(UsageError):
        GenerationOptions(**bad)


def test_options_reach_the_choice(model):
    """Each alone changes the answer; top-k of 1 makes it greedy."""
    sampled = {"max_new_tokens": 24, "temperature": 1.5, "seed": 3}
    answers = [
        list(run(model, GenerationOptions(**sampled, **more), eos_ids=frozenset()))
        for more in ({}, {"sampling_top_k": 4}, {"top_p": 0.2}, {"repetition_penalty": 3.0})
    ]
    assert len({tuple(answer) for answer in answers}) == 4
    greedy = list(run(model, GenerationOptions(max_new_tokens=24), eos_ids=frozenset()))
    assert (
        list(run(model, GenerationOptions(**sampled, sampling_top_k=1), eos_ids=frozenset()))
        == greedy
    )
