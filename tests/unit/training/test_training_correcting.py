"""Corrections are fitted to a joint prefill, and taken at the strength that answers best."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import REPEAT_KINDS, Adapter, load_adapter
from kvpacket_store.assemble import Before, Corrector, Predecessors
from kvpacket_store.errors import StoreFullError, UsageError
from kvpacket_store.models import bits_to_tensor
from kvpacket_store.prefill import Prefiller, preamble_adapter
from kvpacket_store.training import TrainOptions, correct_adapter, correcting, gather
from kvpacket_store.training.correcting import STRENGTHS, _Sums, fit_correction
from kvpacket_store.training.samples import Sampler
from kvpacket_store.training.sources import split

OPTIONS = TrainOptions(
    samples=4, validation_samples=3, questions=2, max_packets=4, sample_tokens=600, answer_tokens=6
)


def test_planted_maps_are_found(model, monkeypatch):
    monkeypatch.setattr(correcting, "_RIDGE", 1e-4)  # which pulls kinds of rows together
    layout, generator = model.layout, torch.Generator().manual_seed(0)
    heads = (2, layout.num_layers, layout.num_kv_heads)
    dim = layout.head_dim
    planted = torch.randn(REPEAT_KINDS, *heads, dim, dim, generator=generator)
    bias = torch.randn(REPEAT_KINDS, *heads, 1, dim, generator=generator)
    sums = _Sums(model)
    for positions in (60, 150, 600, 900):
        repeats = np.random.default_rng(positions).integers(0, REPEAT_KINDS, 900).astype(np.uint8)
        alone = torch.randn(*heads, 900, dim, generator=generator)
        shifts = alone @ planted + bias
        kinds = torch.from_numpy(repeats).long().expand(1, *heads, dim, -1).mT
        shift = shifts.gather(0, kinds)[0] * positions / (positions + 150)
        sums.take(alone, alone + shift, Before(positions, repeats))
    found = sums.solve()
    np.testing.assert_allclose(found.maps, planted.numpy(), atol=0.1)
    np.testing.assert_allclose(found.biases, bias.numpy().repeat(10, axis=4), atol=0.1)


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


def test_rows_come_nearer_to_those_of_a_joint_prefill(model, corpus):
    """Fitted on a few prompts of the corpus, looked at on others; soft tokens that stay count."""
    width = int(model.embedding.weight.shape[1])
    soft = np.random.default_rng(0).normal(0, 0.05, (2, 3, width)).astype(np.float32)
    adapter = Adapter("soft", soft[0], soft[1])
    train, held_out = split(corpus.documents, corpus.questions, 0)
    samplers = [
        Sampler(train, model.tokenizer, OPTIONS, "train"),
        Sampler(held_out, model.tokenizer, OPTIONS, "validation"),
    ]
    samples, others = (
        [s for s in map(sampler.sample, range(12)) if len(s.segments) > 1] for sampler in samplers
    )
    fit = fit_correction(model, adapter, samples)
    assert fit.digest == fit_correction(model, adapter, samples).digest
    corrected = replace(adapter, correction=fit)
    errors = [squared_errors(model, one, others) for one in (adapter, corrected)]
    assert errors[1][0] == errors[0][0]  # the first packet's
    assert 0 < errors[1][1] < 0.97 * errors[0][1]


def squared_errors(model, adapter, samples):
    """Of placed V to a joint prefill's: of first packets, and of later ones."""
    prefiller, corrector = Prefiller(model, adapter), Corrector(adapter, model)
    first = later = 0.0
    for sample in samples:
        ids = (*sample.preamble, *(i for segment in sample.segments for i in segment))
        _, joint = model.capture(ids, model.new_cache(len(ids)))
        at, predecessors = len(sample.preamble), Predecessors()
        for segment in sample.segments:
            k, v = (bits_to_tensor(b, prefiller.kv_dtype) for b in vars_of(prefiller, segment))
            before = predecessors.then(segment, len(segment) + 6)
            if (correct := corrector.behind(before)) is not None:
                v = torch.stack([correct(i, k[i], v[i])[1] for i in range(len(k))])
            rows = joint[:, :, at : at + len(segment)] - v[:, :, : len(segment)]
            error = float(rows.square().sum())
            first, later = (first, later + error) if before.positions else (first + error, later)
            at += len(segment)
    return first, later


def vars_of(prefiller, segment):
    body = prefiller.segment(segment)
    return body.k, body.v


def test_the_same_text_gives_the_same_correction(model, corpus, tmp_path):
    width = int(model.embedding.weight.shape[1])
    digests = {
        correct_adapter(
            model, corpus, tmp_path / f"{i}.safetensors", Adapter.none(width), OPTIONS
        ).digest
        for i in range(2)
    }
    assert len(digests) == 1


def test_what_no_prompts_of_several_packets_can_be_made_of_is_refused(
    model, corpus, tmp_path, monkeypatch
):
    path, start = tmp_path / "a.safetensors", preamble_adapter(model)
    with pytest.raises(UsageError, match="max_packets"):
        correct_adapter(model, corpus, path, start, replace(OPTIONS, max_packets=1))
    sample = Sampler.sample

    def one_packet(self, number):
        made = sample(self, number)
        return replace(made, segments=made.segments[:1])

    monkeypatch.setattr(Sampler, "sample", one_packet)
    with pytest.raises(UsageError, match="several packets"):
        correct_adapter(model, corpus, path, start, OPTIONS)
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_fitted(model, corpus, tmp_path):
    (tmp_path / "there.safetensors").write_text("mine")
    start = preamble_adapter(model)
    with pytest.raises(UsageError, match="there already"):
        correct_adapter(model, corpus, tmp_path / "there.safetensors", start, OPTIONS)
    assert (tmp_path / "there.safetensors").read_text() == "mine"
    with pytest.raises(StoreFullError, match="cannot be written"):
        correct_adapter(model, corpus, tmp_path / "there.safetensors/a.safetensors", start, OPTIONS)
