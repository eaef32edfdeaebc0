"""From items to a report: figures, intervals, gaps, and what is refused."""

import json

import numpy as np
import pytest

from kvpacket_store.errors import QualityError, UsageError
from kvpacket_store.quality.arm import ARMS
from kvpacket_store.quality.intervals import bootstrap_interval
from kvpacket_store.quality.journal import Journal
from kvpacket_store.quality.measure import QualityPlan, require_sane
from kvpacket_store.quality.report import arm_report, arms_report, doubts, gaps_closed


def row(kl=0.0, nll=1.0, **changed):
    base = {
        "kl": kl,
        "gold_nll": nll,
        "gold_nll_answer": 3 * nll,
        "f1": 0.5,
        "em": 0.0,
        "overlap": [1, 2, 2],
        "empty": False,
        "no_end": False,
        "repeats": False,
        "ttft_ms": 10.0,
        "flops": 100,
        "recomputed_tokens": 0,
        "context_tokens": 50,
        "answer": "so",
    }
    return base | changed


def results(**arms):
    """Items of arms, each a list of rows."""
    return [dict(zip(arms, rows, strict=True)) for rows in zip(*arms.values(), strict=True)]


def test_figures_are_means_medians_and_sums_over_the_corpus():
    rows = [
        row(0.1, 1.0, overlap=[1, 1, 1], ttft_ms=1.0, empty=True),
        row(0.3, 2.0, overlap=[0, 3, 1], ttft_ms=2.0),
        row(0.2, 6.0, overlap=[1, 2, 4], ttft_ms=90.0, empty=True, repeats=True),
    ]
    found = arm_report(rows)
    assert (found["n"], found["kl"], found["gold_nll"]) == (3, pytest.approx(0.2), 3.0)
    assert found["gold_nll_answer"] == 9.0
    assert found["ttft_ms"] == 2.0
    assert found["micro_f1"] == pytest.approx(2 * 2 / (6 + 6))
    assert found["format_failures"] == pytest.approx(
        {"empty": 2 / 3, "no_end": 0.0, "repeats": 1 / 3, "any": 2 / 3}
    )
    low, high = found["kl_interval"]
    assert 0.1 <= low < 0.2 < high <= 0.3
    assert json.dumps(found)


def test_an_interval_is_the_same_twice_and_covers_as_it_should():
    """Of 200 samples of a known mean, about 95 % of the intervals hold it."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        values = random.normal(3.0, 1.0, 40)
        low, high = bootstrap_interval({"x": values}, lambda c: c["x"].mean(-1))
        held += low <= 3.0 <= high
    assert 178 <= held <= 199
    again = bootstrap_interval({"x": values}, lambda c: c["x"].mean(-1))
    assert again == (low, high)
    assert bootstrap_interval({"x": values[:1]}, lambda c: c["x"].mean(-1)) is None


def test_what_belongs_together_is_drawn_together():
    """Arm and naive differ by a constant factor in each item, so the gap has no spread."""
    naive = [row(kl) for kl in (0.1, 0.5, 2.0, 0.2)]
    packet = [row(0.25 * kl) for kl in (0.1, 0.5, 2.0, 0.2)]
    full = [row() for _ in naive]
    closed = gaps_closed(results(full=full, naive=naive, packet=packet))["packet"]["kl"]
    assert closed["share"] == pytest.approx(0.75)
    assert closed["interval"] == pytest.approx((0.75, 0.75))


def test_gaps_say_how_much_of_the_way_is_gone():
    found = gaps_closed(
        results(
            full=[row(0.0, 4.0)] * 3,
            naive=[row(0.5, 5.0)] * 3,
            packet=[row(0.1, 4.2)] * 3,
            epic=[row(0.6, 5.5)] * 3,
            none=[row(1.5, 6.0)] * 3,
        )
    )
    assert set(found) == {"packet", "epic", "none"}
    assert found["packet"]["kl"]["share"] == pytest.approx(0.8)
    assert found["packet"]["gold_nll"]["share"] == pytest.approx(0.8)
    assert found["epic"]["kl"]["share"] == pytest.approx(-0.2)
    assert found["epic"]["gold_nll"]["share"] == pytest.approx(-0.5)


def test_without_a_gap_there_is_none_to_close():
    found = gaps_closed(results(full=[row()] * 2, naive=[row()] * 2, packet=[row()] * 2))
    assert found["packet"] == {"kl": None, "gold_nll": None}


def block(full, none):
    items = results(full=full, naive=[row(0.2)] * len(full), none=none)
    arms = arms_report(items)
    return {"arms": arms, "gap_closed": gaps_closed(items), "doubts": doubts(arms)}


def test_a_full_recompute_that_does_badly_is_refused():
    sound = block([row(0, 1.0)] * 2, [row(1, 2.0)] * 2)
    assert sound["doubts"] == []
    no_better = block([row(0, 2.0)] * 2, [row(1, 2.0)] * 2)
    endless = block([row(0, 1.0, no_end=True)] * 2, [row(1, 2.0)] * 2)
    half = block([row(0, 1.0, no_end=True), row(0, 1.0)], [row(1, 2.0)] * 2)
    assert half["doubts"] == []
    for bad, word in ((no_better, "no likelier"), (endless, "no_end")):
        report = {**bad, "datasets": []}
        with pytest.raises(QualityError, match=word) as refused:
            require_sane(report)
        assert refused.value.exit_code == 5
        forced = require_sane(report, force=True)
        assert (forced["sane"], forced["forced"]) == (False, True)
    kept = require_sane({**sound, "datasets": [{"name": "odd", **no_better}]})
    assert (kept["sane"], kept["forced"]) == (True, False)
    assert kept["doubts"][0].startswith("odd: ")


def test_a_plan_has_full_first_and_what_every_report_needs():
    assert QualityPlan(["ape"]).names == ["full", "naive", "none", "ape"]
    assert QualityPlan().names == list(ARMS)
    with pytest.raises(UsageError, match="no arm is named 'best'"):
        QualityPlan(["best"])


def test_a_journal_keeps_what_is_done_and_does_a_cut_line_again(tmp_path):
    path = tmp_path / "deep" / "j.partial"
    with Journal(path) as journal:
        journal.put("a", {"x": 1})
        journal.put("b", [2])
    path.write_text(path.read_text() + '{"key": "c", "resu')
    with Journal(path) as journal:
        assert (journal.get("a"), journal.get("b"), journal.get("c")) == ({"x": 1}, [2], None)
        journal.put("c", 3)
    with Journal(path) as journal:
        assert len(journal) == 3
        journal.forget()
    assert not path.exists()
