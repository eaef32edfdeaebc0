"""A measurement from items to report, on tiny models."""

import json
from dataclasses import replace

import pytest
import torch

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.benchmarks.scores import mean_kl
from kvpacket_store.errors import QualityError, UsageError
from kvpacket_store.models import attending
from kvpacket_store.quality import measure
from kvpacket_store.quality.arm import ARMS
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.datasets import DataOptions, DataSet, Skipped, load_datasets
from kvpacket_store.quality.measure import QualityPlan, journal_path, measure_quality
from kvpacket_store.quality.run import hear, run_item
from kvpacket_store.types import Document

FIGURES = {"kl", "gold_nll", "f1", "em", "ttft_ms", "n"}
PLAN = QualityPlan(answer_tokens=5, force=True)


@pytest.fixture
def data(item):
    other = QuestionItem("What melts late?", ["copper"], item.documents)
    return DataSet("owls", "held-out", "here", "none", [item, other])


def test_a_report_is_the_contracts(model, adapter_of, data):
    shares = []
    report = measure_quality(
        model,
        adapter_of(model),
        [data],
        skipped=[Skipped("nq", "no file")],
        plan=PLAN,
        progress=lambda stage, share: shares.append((stage, share)),
    )
    assert list(report["arms"]) == list(ARMS)
    for block in (report, report["datasets"][0]):
        assert all(set(figures) >= FIGURES for figures in block["arms"].values())
        assert {figures["n"] for figures in block["arms"].values()} == {2}
    assert report["arms"]["full"]["kl"] == 0.0
    assert report["arms"]["naive"]["kl"] > 0
    assert report["datasets"][0]["domain"] == "held-out"
    assert report["skipped"] == [{"name": "nq", "reason": "no file"}]
    assert shares == [("owls", 0.0), ("owls", 0.5)]
    assert json.loads(json.dumps(report)) == json.loads(json.dumps(report))


def test_distances_are_to_the_full_recompute_on_its_own_answer(model, adapter_of, prompt_of):
    """The same by hand: one forward over the whole prompt and the full recompute's answer."""
    prompt, arms = prompt_of(model), Arms(model, adapter_of(model))
    teacher = hear(model, prompt, arms.start("full", prompt), None)
    naive = hear(model, prompt, arms.start("naive", prompt), teacher.answer)
    for heard, name in ((teacher, "full"), (naive, "naive")):
        for rows, forced in ((heard.on_answer, teacher.answer), (heard.on_gold, prompt.gold)):
            ready = arms.start(name, prompt)()
            with attending(ready.rule):
                logits = model.forward(
                    (*ready.input_ids, *forced[:-1]), ready.cache, keep_logits=len(forced)
                )
            torch.testing.assert_close(rows, logits, rtol=1e-3, atol=1e-3)
    assert teacher.answer == [int(logits.argmax()) for logits in teacher.on_answer]
    assert mean_kl(teacher.on_answer, naive.on_answer) > 0


def test_faults_of_form_are_told(model, adapter_of, item, monkeypatch):
    arms = Arms(model, adapter_of(model))
    end = next(iter(model.eos_ids))
    for answer, faults in (([end], (1, 0, 0)), ([65] * 9, (0, 1, 1)), ([65, 66, end], (0, 0, 0))):
        monkeypatch.setattr("kvpacket_store.quality.run._greedy", lambda *_, a=answer: a)
        found = run_item(arms, ["full"], item, answer_tokens=9)["full"]
        assert (found["empty"], found["no_end"], found["repeats"]) == faults


def test_an_interrupted_run_goes_on_with_what_is_left(
    model, adapter_of, data, tmp_path, monkeypatch
):
    path, done = tmp_path / "x.partial", []
    real = measure.run_item

    def once(arms, names, item, **options):
        if done:
            raise KeyboardInterrupt
        done.append(item.question)
        return real(arms, names, item, **options)

    monkeypatch.setattr(measure, "run_item", once)
    with pytest.raises(KeyboardInterrupt):
        measure_quality(model, adapter_of(model), [data], plan=PLAN, journal=path)
    asked = []
    monkeypatch.setattr(
        measure, "run_item", lambda a, n, i, **o: asked.append(i.question) or real(a, n, i, **o)
    )
    report = measure_quality(model, adapter_of(model), [data], plan=PLAN, journal=path)
    assert asked == [item.question for item in data.items if item.question not in done]
    assert report["arms"]["full"]["n"] == 2
    assert not path.exists()


def test_a_refused_report_costs_nothing_the_second_time(
    model, adapter_of, data, tmp_path, monkeypatch
):
    path = tmp_path / "x.partial"
    monkeypatch.setattr(measure, "doubts", lambda arms: ["odd"])
    strict = replace(PLAN, force=False)
    with pytest.raises(QualityError, match="odd"):
        measure_quality(model, adapter_of(model), [data], plan=strict, journal=path)
    monkeypatch.setattr(measure, "run_item", lambda *_, **__: pytest.fail("it was done before"))
    report = measure_quality(model, adapter_of(model), [data], plan=PLAN, journal=path)
    assert (report["sane"], report["forced"]) == (False, True)
    assert not path.exists()


def test_a_journal_belongs_to_one_model_adapter_and_plan(model, tiny_model, adapter_of, tmp_path):
    def path(made, plan):
        return journal_path(made, adapter_of(made), plan, tmp_path / "r.json")

    first = path(model, PLAN)
    assert first.parent == tmp_path
    assert first == path(model, QualityPlan(answer_tokens=5))
    assert first != path(model, QualityPlan(answer_tokens=6))
    assert first != path(tiny_model("qwen3"), PLAN)


def test_items_that_are_too_long_are_counted_and_left_out(model, adapter_of, item):
    long = QuestionItem("?", ["a"], [Document("l", "word " * 900)])
    data = DataSet("mixed", "held-out", "here", "none", [item, long])
    report = measure_quality(model, adapter_of(model), [data], plan=PLAN)
    assert (report["datasets"][0]["n"], report["datasets"][0]["too_long"]) == (1, 1)
    only_long = DataSet("long", "held-out", "here", "none", [long])
    with pytest.raises(UsageError, match="no item fits"):
        measure_quality(model, adapter_of(model), [only_long], plan=PLAN)


def test_every_generated_set_runs_on_a_tiny_model(model, adapter_of):
    options = DataOptions(limit=1, packets=2, document_tokens=40)
    datasets, skipped = load_datasets(["biographies", "two-hop", "needles"], options)
    plan = QualityPlan(["packet"], answer_tokens=3, force=True)
    report = measure_quality(model, adapter_of(model), datasets, plan=plan)
    assert skipped == []
    assert [block["n"] for block in report["datasets"]] == [1, 1, 1]
