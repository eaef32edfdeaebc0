"""Top-k, top-p and repetition penalty: Hugging Face's, and unchanged noise."""

import numpy as np
import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from kvpacket_store.errors import ModelError
from kvpacket_store.generate import (
    Sampler,
)
from kvpacket_store.generate.cutoffs import Cutoffs

CUTS = [(0, 1.0), (5, 1.0), (0, 0.9), (50, 0.9), (0, 0.01), (3, 0.999), (10**9, 0.5), (1, 0.3)]


def rows(count, vocabulary=4096, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, vocabulary, generator=generator) * 3


def test_the_noise_of_a_seed_and_position_stays():
    """Golden: what version 0.1 picked with temperature alone, also on bf16 with its ties."""
    logits = rows(6)
    picks = {
        t: [Sampler(t, seed=2**63 - 5 + i).pick(logits[i], 100 + i) for i in range(6)]
        for t in (0.3, 1.0, 1.7)
    }
    assert picks == {
        0.3: [1657, 1430, 2832, 707, 4015, 782],
        1.0: [1657, 130, 2832, 2782, 3113, 4069],
        1.7: [649, 130, 2832, 666, 3113, 4069],
    }
    logits = rows(12).bfloat16()
    assert [Sampler(0.8, seed=i).pick(logits[i], i) for i in range(12)] == [
        2561, 2816, 1670, 707, 4015, 787, 445, 2535, 1494, 3135, 177, 206
    ]  # fmt: skip


@pytest.mark.parametrize(("top_k", "top_p"), CUTS)
@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.7])
def test_kept_tokens_and_their_scores_are_those_of_hugging_face(top_k, top_p, penalty):
    previous = [3, 5, 3, 900, 4095]
    for logits in rows(8):
        sampler = Sampler(0.7, 1, repetition_penalty=penalty)
        scores = sampler._penalized(logits, previous).double()
        ours = ((scores - scores.max()) / 0.7).numpy()
        kept = Cutoffs(ours, top_k, top_p).ids
        theirs, ids = logits.double()[None], torch.tensor([previous])
        steps = [RepetitionPenaltyLogitsProcessor(penalty), TemperatureLogitsWarper(0.7)]
        steps += [TopKLogitsWarper(top_k)] if top_k else []
        steps += [TopPLogitsWarper(top_p)] if top_p < 1 else []
        for step in steps:
            theirs = step(ids, theirs)
        assert kept.tolist() == theirs[0].isfinite().nonzero()[:, 0].tolist()
        difference = theirs[0, kept].numpy() - ours[kept]
        assert np.allclose(difference, difference[0], rtol=0, atol=1e-9)


def test_of_equal_scores_the_lowest_ids_are_kept():
    scores = np.zeros(64)
    assert Cutoffs(scores, 5, 1.0).ids.tolist() == [0, 1, 2, 3, 4]
    assert Cutoffs(scores, 0, 0.5).ids.tolist() == list(range(32))
    scores[40:] = -1.0
    assert Cutoffs(scores, 42, 1.0).ids.tolist() == list(range(42))


@pytest.mark.parametrize(("top_k", "top_p"), [(4, 1.0), (0, 0.6), (6, 0.8)])
def test_samples_follow_what_is_kept(top_k, top_p):
    """2,000 draws: each share within 0.045 (4 standard deviations)."""
    logits = torch.linspace(0, 3, 12).flip(0)
    kept = Cutoffs((logits - 3).double().numpy(), top_k, top_p).ids
    sampler = Sampler(1.0, seed=1, top_k_tokens=top_k, top_p=top_p)
    picks = torch.tensor([sampler.pick(logits, position) for position in range(2000)])
    shares = torch.bincount(picks, minlength=12) / 2000
    expected = torch.zeros(12)
    expected[kept] = torch.softmax(logits[kept], 0)
    assert torch.allclose(shares, expected, atol=0.045)
    assert set(picks.tolist()) <= set(kept.tolist())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_refused(temperature):
    with pytest.raises(ModelError, match="not numbers"):
        Sampler(temperature, seed=1).pick(torch.tensor([1.0, float("nan")]), 0)


def test_the_callers_logits_stay_as_they_are():
    logits = rows(1, 100)[0]
    before = logits.clone()
    Sampler(0.9, 1, top_k_tokens=4, top_p=0.8, repetition_penalty=2.0).pick(logits, 0, [1, 2])
    Sampler(0.0, repetition_penalty=2.0).pick(logits, 0, [1, 2])
    Sampler(0.0).pick(logits, 0)
    assert torch.equal(logits, before)
