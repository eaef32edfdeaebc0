"""Whole runs on a tiny model: they help, can be repeated, are resumed, and end in words."""

import errno
import json

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter, adapter_metadata, load_adapter
from kvpacket_store.errors import AdapterError, StoreFullError, UsageError
from kvpacket_store.prefill import preamble_adapter
from kvpacket_store.training import Corpus, train_adapter
from kvpacket_store.training.checkpoint import load_checkpoint
from kvpacket_store.training.sources import Source
from kvpacket_store.training.student import SoftTokenStudent
from kvpacket_store.training.teacher import Teacher
from kvpacket_store.types import Document


@pytest.fixture
def run(model, corpus, tiny_options, tmp_path):
    """A function: folder's name, options that differ → report."""

    def train(name="run", *, corpus=corpus, start=None, resume=False, watch=bool, **given):
        folder, options = tmp_path / name, tiny_options(**given)
        return train_adapter(
            model, corpus, folder, options, start=start, resume=resume, watch=watch
        )

    return train


def stop_after(step):
    def watch(progress):
        if progress.stage == "train" and progress.step == step:
            raise KeyboardInterrupt

    return watch


def test_training_lowers_the_held_out_kl(run, tmp_path):
    report = run(steps=24, samples=24, validate_every=8, learning_rate=0.02, batch=4)
    assert report.kl_after < 0.95 * report.kl_before
    assert report.gap_closed == pytest.approx(1 - report.kl_after / report.kl_naive)
    assert [look["step"] for look in report.history] == [0, 8, 16, 24]
    assert (report.ended, report.steps) == ("steps", 24)
    adapter = load_adapter(report.adapter)
    assert (adapter.name, adapter.digest) == ("run", report.digest)
    assert (adapter.header_tokens, adapter.trailer_tokens) == (2, 2)
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report.to_dict()


def test_training_begins_as_the_preamble_which_is_left_behind(run, model, tmp_path):
    report = run(header="preamble", steps=2)
    start, adapter = preamble_adapter(model), load_adapter(report.adapter)
    assert (adapter.header_slots, adapter.trailer_tokens) == (0, 0)
    assert adapter.header.shape == start.header.shape
    assert report.tokens == start.header_tokens > 0
    moved = load_checkpoint(tmp_path / "run" / "checkpoint.safetensors").parameter.numpy()
    assert 0 < np.abs(moved - start.header).max() < 0.1
    with pytest.raises(UsageError, match="other header"):
        run(header="soft", resume=True)


def test_a_header_of_no_kind_is_refused(run):
    with pytest.raises(UsageError, match="preamble, soft"):
        run(header="hard")


def test_the_file_says_where_it_came_from(run, model, corpus, tmp_path):
    report = run()
    about = adapter_metadata(report.adapter)
    assert about["digest"] == report.digest
    assert json.loads(about["model_fingerprint"]) == model.fingerprint.to_dict()
    assert json.loads(about["options"])["top_k"] == 16
    assert about["made_by"].startswith("kvpacket-store ")
    assert {"kl_naive", "kl_before", "kl_after", "steps", "sources"} <= set(about)


def test_the_same_run_gives_the_same_adapter(run, tmp_path):
    digests = {name: run(name, seed=seed).digest for name, seed in (("a", 0), ("b", 0), ("c", 1))}
    assert digests["a"] == digests["b"] != digests["c"]
    last = [load_checkpoint(tmp_path / name / "checkpoint.safetensors") for name in "ab"]
    assert torch.equal(last[0].parameter, last[1].parameter)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_run_that_was_stopped_anywhere_ends_with_the_same_bits(run, tmp_path, step):
    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("stopped", watch=stop_after(step))
    report = run("stopped", resume=True)
    assert report.digest == whole.digest
    states = [
        load_checkpoint(tmp_path / n / "checkpoint.safetensors") for n in ("whole", "stopped")
    ]
    for name in ("parameter", "exp_avg", "exp_avg_sq", "best"):
        assert torch.equal(*(getattr(state, name) for state in states))
    assert [look["kl"] for look in report.history] == [look["kl"] for look in whole.history]


def test_a_run_that_was_stopped_keeps_the_best_so_far(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(watch=stop_after(3))
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["ended"], report["steps"]) == ("interrupted", 3)
    assert load_adapter(tmp_path / "run" / "run.safetensors").digest == report["digest"]


def test_more_steps_may_be_asked_for_when_resuming(run):
    run()
    report = run(resume=True, steps=6, learning_rate=1e-3)
    assert (report.steps, report.ended) == (6, "steps")


@pytest.mark.parametrize(
    ("given", "named"), [({"seed": 5}, "seed"), ({"batch": 3}, "batch"), ({"top_k": 9}, "top_k")]
)
def test_what_decides_samples_must_be_the_same_when_resuming(run, given, named):
    run()
    with pytest.raises(UsageError, match=f"other {named};"):
        run(resume=True, **given)


def test_training_goes_on_from_another_adapter(run, tmp_path):
    first = load_adapter(run("first").adapter)
    report = run("second", start=first, seed=1, steps=1)
    moved = load_checkpoint(tmp_path / "second" / "checkpoint.safetensors").parameter.numpy()
    change = np.abs(moved - np.concatenate([first.header, first.trailer])).max()
    assert 0 < change <= 1.001 * 3e-3  # a first step of AdamW is as large as its learning rate
    assert report.kl_after <= report.kl_before
    with pytest.raises(UsageError, match="other start"):
        run("second", resume=True, seed=1)
    with pytest.raises(AdapterError, match="hidden size 32"):
        run("third", start=Adapter.untrained(np.ones((4, 32)), num_tokens=2))


def test_other_text_is_no_run_to_resume(run, corpus, documents):
    run()
    other = Corpus(documents, [], [Source("other.txt", 1, 0, "0" * 64)], [])
    with pytest.raises(UsageError, match="other sources"):
        run(resume=True, corpus=other)


def test_a_folder_with_a_run_is_not_written_over(run):
    run()
    with pytest.raises(UsageError, match="--resume"):
        run()


def test_there_must_be_something_to_resume(run, tmp_path):
    with pytest.raises(UsageError, match="no checkpoint"):
        run(resume=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"no checkpoint")
    with pytest.raises(UsageError, match="no checkpoint of this version"):
        run(resume=True)


def test_patience_ends_a_run_and_the_best_is_kept(run, monkeypatch):
    """Soft tokens that get worse: those before are given out."""
    kls = iter([0.9, 0.8, 0.5, 0.6, 0.7, 0.1])
    values = []

    def kl(self, sample, answers):
        values.append(self.parameter.detach().clone())
        return next(kls)

    monkeypatch.setattr(SoftTokenStudent, "kl", kl)
    report = run(steps=40, validate_every=1, patience=2, validation_samples=1, samples=2)
    assert (report.ended, report.steps, report.best_step) == ("patience", 3, 1)
    assert [look["kl"] for look in report.history] == [0.8, 0.5, 0.6, 0.7]
    best = load_adapter(report.adapter)
    assert np.array_equal(best.header, values[2][:2].numpy())


def test_the_clock_ends_a_run(run):
    report = run(steps=10_000, minutes=1e-6)
    assert (report.ended, report.steps) == ("minutes", 0)
    assert load_adapter(report.adapter).digest == report.digest


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(run, tmp_path, monkeypatch):
    true_loss, calls = SoftTokenStudent.loss, []

    def loss(self, *arguments):
        calls.append(1)
        return true_loss(self, *arguments) * (float("nan") if len(calls) == 5 else 1)

    monkeypatch.setattr(SoftTokenStudent, "loss", loss)
    with pytest.raises(AdapterError, match=r"loss of step 3 is nan.*lower --learning-rate"):
        run()
    state = load_checkpoint(tmp_path / "run" / "checkpoint.safetensors")
    assert state.step == 2
    assert bool(state.parameter.isfinite().all())
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["ended"] == "failed"
    monkeypatch.undo()
    assert run(resume=True).digest == run("whole").digest


def test_a_held_out_kl_that_is_no_number_stops_too(run, tmp_path, monkeypatch):
    kls = iter([0.9, 0.8, 0.7, float("inf")])
    monkeypatch.setattr(SoftTokenStudent, "kl", lambda *_: next(kls))
    with pytest.raises(AdapterError, match="held-out KL after step 2 is inf"):
        run(validate_every=1, validation_samples=1)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["ended"], report["best_step"], report["kl_after"]) == ("failed", 1, 0.7)


def test_a_full_disk_leaves_the_checkpoint_before(run, tmp_path, monkeypatch):
    from kvpacket_store.training import checkpoint

    true_save, calls = checkpoint.save_file, []

    def save(tensors, path, metadata):
        calls.append(1)
        if len(calls) == 4:  # of the start, and of two steps
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        true_save(tensors, path, metadata=metadata)

    monkeypatch.setattr(checkpoint, "save_file", save)
    with pytest.raises(StoreFullError, match=r"step 3 cannot be written.*No space left"):
        run()
    folder = tmp_path / "run"
    assert load_checkpoint(folder / "checkpoint.safetensors").step == 2
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert run(resume=True).digest == run("whole").digest


def test_answers_that_cannot_be_written_are_an_error_of_the_tree(run, monkeypatch):
    from kvpacket_store.training import answer_cache

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(answer_cache, "save_file", full)
    with pytest.raises(StoreFullError, match="make room"):
        run()


def test_a_folder_that_is_a_file_is_refused(run, tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        run()


def test_the_teacher_answers_each_sample_once(run, tmp_path, monkeypatch):
    first = run()
    answered, true_answers = [], Teacher.answers

    def answers(self, sample):
        answered.append(sample.digest)
        return true_answers(self, sample)

    monkeypatch.setattr(Teacher, "answers", answers)
    (tmp_path / "again").mkdir()
    (tmp_path / "run" / "answers").rename(tmp_path / "again" / "answers")
    damaged = sorted((tmp_path / "again" / "answers").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert run("again").digest == first.digest
    assert len(answered) == 1


def test_nothing_to_train_on_is_refused(run):
    for documents in ([], [Document("a", "too short")]):
        with pytest.raises(UsageError, match="2 are the least"):
            run(corpus=Corpus(documents, [], [], []))


@pytest.mark.parametrize(
    "given",
    [{"steps": 0}, {"batch": 0}, {"questions": -1}, {"sample_tokens": 10}, {"learning_rate": 0},
     {"learning_rate": float("nan")}, {"kl_weight": 0.0}, {"ce_weight": -1.0}, {"minutes": 0.0}],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(tiny_options, given):
    with pytest.raises(UsageError, match=next(iter(given))):
        tiny_options(**given)
