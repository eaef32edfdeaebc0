"""``kvps bench decode`` and ``calibrate``: options, JSON, tables, and the file that is kept."""

import contextlib
import json

import pytest
from typer.testing import CliRunner

from kvpacket_store.api import measured_costs
from kvpacket_store.cli.main import app
from kvpacket_store.errors import UsageError
from kvpacket_store.types import Document

DOCUMENT = Document("a", "The river ends in the sea, after 12 days. " * 4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVPACKET_CACHE", str(tmp_path / "cache"))
    measured_costs._read.cache_clear()
    yield
    measured_costs._read.cache_clear()


@pytest.fixture
def tiny(new_store, model, monkeypatch):
    """The commands measure a tiny model, without a peer."""
    store = new_store(kv_dtype="bf16")
    store.ingest([DOCUMENT])
    at = "kvpacket_store.benchmarks."
    monkeypatch.setattr(at + "decode.store_of_examples", lambda name: contextlib.nullcontext(store))
    monkeypatch.setattr(at + "paragraphs.example_documents", lambda: [DOCUMENT])
    monkeypatch.setattr(at + "baseline.load_baseline", lambda *names: None)
    monkeypatch.setattr(
        at + "decode._peer",
        lambda *given: {"hf_tokens_per_s": None, "hf_dtype": None, "hf_left_out": "none here"},
    )
    monkeypatch.setattr("kvpacket_store.models.load_model", lambda name: model)
    return store


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_decode_measures_what_was_asked_for(tiny, tmp_path):
    asked = ("--context-tokens", 200, "--batch", 1, "--batch", 2, "--temperature", 0)
    short = ("--new-tokens", 6, "--runs", 1, "--compressor", "int8", "--exactness", "bit")
    files = ("--out", tmp_path / "d.json", "--html", tmp_path / "d.html")
    said = run("decode", *asked, *short, *files, "--json")
    assert said.exit_code == 0, said.output
    result = json.loads(said.stdout)
    assert json.loads((tmp_path / "d.json").read_text()) == result
    assert "none here" in (tmp_path / "d.html").read_text()
    found = [(row["compressor"], row["batch"], row["exactness"]) for row in result["rows"]]
    assert found == [(name, count, "bit") for count in (1, 2) for name in ("auto", "int8")]
    assert all(row["identical"] for row in result["rows"])
    told = run("decode", *asked, *short)
    assert "2 requests together, greedy, bit" in told.stdout
    assert isinstance(run("decode", "--compressor", "nothing").exception, UsageError)


def test_calibrate_keeps_what_it_measured(tiny, model, monkeypatch):
    said = run("calibrate", "--context-tokens", 100, "--runs", 1, "--json")
    assert said.exit_code == 0, said.output
    result = json.loads(said.stdout)
    assert result["file"] == str(measured_costs.costs_path(model))
    assert measured_costs.read_costs(model).to_dict() == result["costs"]
    told = run("calibrate", "--context-tokens", 100, "--runs", 1)
    assert "plain step" in told.stdout
    assert "1,000 slots" in told.stdout


def test_calibrate_takes_a_store_or_a_model(tiny):
    assert isinstance(run("calibrate", tiny.path, "--model", "x").exception, UsageError)
