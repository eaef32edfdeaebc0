"""Measured costs: how they are fitted, kept, read, and what is ignored."""

import json

import pytest

from kvpacket_store.api import measured_costs
from kvpacket_store.api.costs import costs_of, costs_of_model
from kvpacket_store.api.measured_costs import MeasuredCosts, costs_path, read_costs, write_costs
from kvpacket_store.benchmarks.calibration import calibrate, fit_costs

COSTS = MeasuredCosts(20.0, 0.005, 2.0, 0.001)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVPACKET_CACHE", str(tmp_path))
    measured_costs._read.cache_clear()
    yield tmp_path
    measured_costs._read.cache_clear()


def test_what_was_measured_is_kept_and_used(model):
    by_bytes = costs_of(model, 4000, 1000)
    assert read_costs(model) is None
    measured_costs._read.cache_clear()
    path = write_costs(model, COSTS)
    assert path == costs_path(model)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert read_costs(model) == COSTS
    assert costs_of(model, 4000, 1000) == COSTS.costs(4000, 1000) != by_bytes


def test_costs_are_those_of_one_model_and_number_of_threads(model, tiny_model, monkeypatch):
    write_costs(model, COSTS)
    assert read_costs(tiny_model("qwen3")) is None
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    assert read_costs(model) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\x00",
        json.dumps({"version": 1, **COSTS.to_dict()}),
        json.dumps({"version": 3, **COSTS.to_dict()}),
        json.dumps({"version": 2, **COSTS.to_dict(), "row_ms": -1.0}),
        json.dumps({"version": 2, **COSTS.to_dict(), "row_ms": "fast"}),
        json.dumps({"version": 2, **COSTS.to_dict(), "weights_ms": float("nan")}),
        json.dumps({"version": 2, **COSTS.to_dict(), "more": 1.0}),
    ],
)
def test_a_file_that_cannot_be_read_is_ignored(model, text):
    path = costs_path(model)
    path.parent.mkdir()
    path.write_text(text)
    assert read_costs(model) is None
    assert costs_of(model, 400, 100).verify == 1.0


def test_a_part_that_noise_makes_negative_is_nothing():
    points = [(100, 1, 10.0), (1000, 1, 9.9), (100, 8, 24.0), (1000, 8, 24.0)]
    found = fit_costs(points)
    assert found.slot_ms == 0.0
    assert found.step_ms(500) == pytest.approx(10.0, rel=0.05)
    assert found.step_ms(500, rows=8) == pytest.approx(24.0, rel=0.05)


def test_forwards_are_timed_at_every_context(model):
    shares = []
    costs, told = calibrate(model, contexts=(64, 9999), runs=1, progress=shares.append)
    assert told["costs"] == costs.to_dict()
    assert shares[-1] == 1.0
    slots = {row["slots"] for row in told["rows"] if row["forward"] == "plain step"}
    assert slots == {64, model.max_positions - 16}
    assert {row["rows"] for row in told["rows"]} == {1, 2, 4, 8, 16}
    assert all(row["ms"] > 0 and row["fitted_ms"] > 0 for row in told["rows"])


def test_weights_are_shared_by_all_requests_of_a_forward():
    costs = COSTS.costs(4000, 1000)  # a step takes 40 ms, 18 of them for weights alone
    assert costs.shared == costs.draft_shared == pytest.approx(18 / 40)
    among = costs.among(4)  # 18 / 4 + 22 ms each; of a draft step 18 / 4 + 7, of a row 6
    assert among.draft == pytest.approx(11.5 / 26.5)
    assert among.row == pytest.approx(6 / 26.5)


def test_another_models_weights_are_shared_as_well(model):
    theirs = MeasuredCosts(8.0, 0.001, 1.0, 0.0)
    costs = COSTS.costs_with(theirs, 4000, 2000)
    assert (costs.draft, costs.draft_shared) == pytest.approx((10 / 40, 7 / 40))
    assert costs_of_model(model, model, 400, 100) == costs_of(model, 400, 100)
