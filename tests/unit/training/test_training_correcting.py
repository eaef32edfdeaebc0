"""Corrections are fitted to a joint prefill, and taken at the strength that answers best."""

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter, load_adapter
from kvpacket_store.errors import UsageError
from kvpacket_store.prefill import preamble_adapter
from kvpacket_store.training import TrainOptions, correct_adapter, gather
from kvpacket_store.training.correcting import STRENGTHS, _Sums

OPTIONS = TrainOptions(
    samples=4, validation_samples=3, questions=2, max_packets=4, sample_tokens=600, answer_tokens=6
)


def test_a_planted_map_is_found(model):
    layout, generator = model.layout, torch.Generator().manual_seed(0)
    heads = (2, layout.num_layers, layout.num_kv_heads)
    dim = layout.head_dim
    planted = torch.randn(*heads, dim, dim, generator=generator)
    bias = torch.randn(*heads, 1, dim, generator=generator)
    sums = _Sums(model)
    for weight in (0.3, 0.6, 0.8):
        alone = torch.randn(*heads, 400, dim, generator=generator)
        sums.take(alone, alone + weight * (alone @ planted + bias), weight)
    found = sums.solve()
    np.testing.assert_allclose(found.maps, planted.numpy(), atol=0.1)
    np.testing.assert_allclose(found.biases, bias.numpy().repeat(10, axis=3), atol=0.1)


@pytest.fixture
def corpus(tmp_path):
    rng, words = (
        np.random.default_rng(0),
        ["sun", "moon", "river", "stone", "bird", "tree", "cloud", "wind", "fire", "rain"],
    )
    for number in range(12):
        text = " ".join(rng.choice(words, 150)) + "."
        (tmp_path / f"{number}.txt").write_text(text)
    return gather(paths=[str(tmp_path)])


def test_the_strength_that_answers_best_is_taken(model, corpus, tmp_path):
    told = []
    path = tmp_path / "corrected.safetensors"
    report = correct_adapter(
        model, corpus, path, preamble_adapter(model), OPTIONS, watch=lambda *now: told.append(now)
    )
    assert set(report.kl) == {str(strength) for strength in STRENGTHS}
    assert report.kl[str(report.strength)] == min(report.kl.values())
    found = load_adapter(path)
    assert found.digest == report.digest
    assert (found.correction is None) == (report.strength == 0.0)
    assert found.prefill_digest == preamble_adapter(model).digest
    assert ("fit", 1.0) in told


def test_the_same_text_gives_the_same_correction(model, corpus, tmp_path):
    width = int(model.embedding.weight.shape[1])
    digests = {
        correct_adapter(
            model, corpus, tmp_path / f"{i}.safetensors", Adapter.none(width), OPTIONS
        ).digest
        for i in range(2)
    }
    assert len(digests) == 1


def test_prompts_of_one_packet_are_not_enough(model, tmp_path):
    (tmp_path / "one.txt").write_text("A short text, and no more than that. " * 12)
    (tmp_path / "two.txt").write_text("Another one that is as short as it. " * 12)
    options = TrainOptions(samples=4, validation_samples=3, max_packets=1, sample_tokens=400)
    with pytest.raises(UsageError, match="several packets"):
        correct_adapter(
            model, gather(paths=[str(tmp_path)]), tmp_path / "a.safetensors",
            preamble_adapter(model), options,
        )  # fmt: skip
