"""``kvps adapter correct``: from files to a corrected adapter, and what is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from kvpacket_store.adapters import load_adapter
from kvpacket_store.cli.main import app
from kvpacket_store.errors import AdapterError, StoreFullError, UsageError

SMALL = ("--samples", "3", "--validation-samples", "2", "--max-packets", "3")


def run(*arguments):
    return CliRunner().invoke(app, ["adapter", "correct", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    rng, words = np.random.default_rng(0), ["sun", "moon", "river", "stone", "bird", "tree", "rain"]
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(10):
        (texts / f"{number}.txt").write_text(" ".join(rng.choice(words, 60)) + ".")
    return texts


@pytest.fixture(autouse=True)
def _loaded(model, monkeypatch):
    monkeypatch.setattr("kvpacket_store.models.load_model", lambda name, **_: model)


def test_files_become_a_corrected_adapter(files, tmp_path):
    file = tmp_path / "new" / "mine.safetensors"
    result = run(file, files, "--adapter", "preamble", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert load_adapter(file).digest == report["digest"]
    assert report["kl"][str(report["strength"])] == min(report["kl"].values())
    again = run(tmp_path / "again.safetensors", files, "--adapter", file, *SMALL)
    assert again.exit_code == 0, again.output
    assert "To use it: kvps init" in again.stdout
    assert load_adapter(tmp_path / "again.safetensors").digest == report["digest"]


@pytest.mark.parametrize(
    ("file", "others", "error"),
    [
        ("a.safetensors", [], UsageError),
        ("a.bin", ["texts"], UsageError),
        ("there.safetensors", ["texts"], UsageError),
        ("a.safetensors", ["texts", "--max-packets", "1"], UsageError),
        ("a.safetensors", ["texts", "--adapter", "nowhere.safetensors"], AdapterError),
        ("there.safetensors/a.safetensors", ["texts"], StoreFullError),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(files, tmp_path, file, others, error):
    there = tmp_path / "there.safetensors"
    there.write_text("mine")
    named = [files if other == "texts" else other for other in others]
    result = run("--adapter", "none", *SMALL, tmp_path / file, *named)
    assert isinstance(result.exception, error)
    assert there.read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} == {"texts", "there.safetensors"}
