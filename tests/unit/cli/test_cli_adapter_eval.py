"""``kvps adapter eval`` and ``kvps bench quality``: options, JSON, files, what is refused."""

import json

import pytest
import typer
from typer.testing import CliRunner

from kvpacket_store.api import Store
from kvpacket_store.api.quality_gate import why_unverified
from kvpacket_store.cli import adapter_eval
from kvpacket_store.cli.main import app
from kvpacket_store.errors import QualityError, UsageError

SHORT = ("--answer-tokens", 4, "--limit", 2, "--packets", 2, "--document-tokens", 40)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVPACKET_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(model, monkeypatch):
    monkeypatch.setattr("kvpacket_store.models.load_model", lambda name: model)


def run(*arguments):
    alone = typer.Typer()
    alone.command("eval")(adapter_eval.eval)
    alone.command("other")(lambda: None)
    return CliRunner().invoke(alone, ["eval", *map(str, arguments)])


def test_the_report_is_the_contracts_and_goes_where_it_is_asked(tiny, tmp_path):
    files = ("--out", tmp_path / "q.json", "--html", tmp_path / "q.html")
    sets = ("--set", "needles", "--set", "nq")
    said = run(*SHORT, *sets, "--arms", "packet,epic", "--force", *files, "--json")
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout)
    assert json.loads((tmp_path / "q.json").read_text()) == report
    assert list(report["arms"]) == ["full", "naive", "packet", "none", "epic"]
    figures = {"kl", "gold_nll", "f1", "em", "ttft_ms", "n"}
    assert all(set(values) >= figures for values in report["arms"].values())
    assert [block["name"] for block in report["datasets"]] == ["needles"]
    assert report["skipped"][0]["name"] == "nq"
    assert "nq is left out" in said.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["q.html", "q.json"]
    page = (tmp_path / "q.html").read_text()
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "http" not in page


def test_tables_are_for_people(tiny):
    said = run(*SHORT, "--set", "biographies", "--arms", "packet", "--force")
    assert said.exit_code == 0, said.output
    assert "biographies, held-out, 2 questions" in said.stdout
    assert "closed" in said.stdout


def test_an_unsound_baseline_is_refused_unless_forced(tiny, monkeypatch):
    monkeypatch.setattr(
        "kvpacket_store.quality.measure.doubts", lambda arms: ["full recompute is at a loss"]
    )
    said = run(*SHORT, "--set", "needles", "--arms", "packet")
    assert isinstance(said.exception, QualityError)
    forced = run(*SHORT, "--set", "needles", "--arms", "packet", "--force", "--json")
    report = json.loads(forced.stdout)
    assert (report["sane"], report["forced"]) == (False, True)


def test_a_run_that_is_broken_off_says_that_it_goes_on(tiny, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("kvpacket_store.quality.measure.run_item", interrupt)
    said = run(*SHORT, "--set", "needles")
    assert said.exit_code == 130
    assert "goes on with what is left" in said.stderr


def test_own_questions_are_measured_alone(tiny, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "Q?", "answers": ["a"], "documents": ["It is a."]}\n')
    said = run("--data", path, "--answer-tokens", 3, "--arms", "packet", "--force", "--json")
    assert [b["name"] for b in json.loads(said.stdout)["datasets"]] == ["mine"]


def test_a_store_is_measured_as_it_is_and_keeps_the_report(folder, model, monkeypatch):
    monkeypatch.setattr("kvpacket_store.quality.measure.doubts", lambda arms: [])
    said = run("--store", folder, *SHORT, "--set", "needles", "--arms", "packet", "--json")
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout)
    assert report["plan"]["kv_dtype"] == "fp32"
    assert "report recorded; verified" in said.stderr
    with Store.open(folder, model=model) as store:
        assert why_unverified(store) is None
        assert store.packets.get_quality()["arms"]["full"]["n"] == 2
    both = run("--store", folder, "--model", "smollm2")
    assert isinstance(both.exception, UsageError)


def test_a_forced_report_does_not_verify_a_store(folder, monkeypatch):
    monkeypatch.setattr("kvpacket_store.quality.measure.doubts", lambda arms: ["odd"])
    said = run("--store", folder, *SHORT, "--set", "needles", "--arms", "packet", "--force")
    assert "unverified: its quality report was forced" in said.stderr


def test_ask_refuses_an_unverified_pair_where_that_is_required(folder):
    asked = ("ask", str(folder), "Where?", "--docs", "a", "--max-new-tokens", "2")
    assert CliRunner().invoke(app, asked).exit_code == 0
    refused = CliRunner().invoke(app, [*asked, "--require-verified"])
    assert isinstance(refused.exception, QualityError)


def test_bench_quality_is_the_same_command(tiny):
    said = CliRunner().invoke(
        app,
        ["bench", "quality", *map(str, SHORT), "--set", "needles", "--arms", "packet", "--force"],
    )
    assert said.exit_code == 0, said.output
    assert "needles, held-out" in said.stdout


def test_sets_that_all_need_a_file_are_a_usage_error(tiny):
    assert isinstance(run("--set", "nq").exception, UsageError)
