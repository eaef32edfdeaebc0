"""``kvps adapter train`` and ``list``: from files to an adapter, and what both say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from kvpacket_store.adapters import Adapter, load_adapter, save_adapter
from kvpacket_store.cli.adapter_page import adapter_page
from kvpacket_store.cli.main import app
from kvpacket_store.errors import ModelError, NotFoundError, UsageError

SMALL = (
    *("--tokens", "2", "--steps", "2", "--batch", "1", "--samples", "2"),
    *("--validation-samples", "1", "--questions", "1", "--max-packets", "2"),
    *("--sample-tokens", "800", "--answer-tokens", "4", "--validate-every", "1"),
)


def run(*arguments):
    return CliRunner().invoke(app, ["adapter", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("Rhine", "Elbe", "Oder", "Main"):
        text = f"The {name} is a river. It meets the old town of {name}burg in the north."
        (texts / f"{name}.txt").write_text(text)
    line = {"question": "Where does the Isar end?", "answers": ["the Danube"],
            "documents": ["The Isar ends in the Danube, near the town of Deggendorf."]}  # fmt: skip
    (tmp_path / "questions.jsonl").write_text(json.dumps(line) + "\n")
    return texts


@pytest.fixture
def loaded(model, monkeypatch):
    """Names of the models that were asked for; each is the tiny one."""
    asked = []

    def load(name, **_):
        asked.append(name)
        return model

    monkeypatch.setattr("kvpacket_store.models.load_model", load)
    return asked


def test_files_and_questions_become_an_adapter_with_report_and_page(files, loaded, tmp_path):
    data = ("--data", tmp_path / "questions.jsonl")
    result = run("train", tmp_path / "mine", files, *data, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    adapter = load_adapter(tmp_path / "mine" / "mine.safetensors")
    assert (report["digest"], report["steps"]) == (adapter.digest, 2)
    assert [source["name"] for source in report["sources"]] == ["texts", "questions.jsonl"]
    assert [source["questions"] for source in report["sources"]] == [0, 1]
    page = (tmp_path / "mine" / "training.html").read_text()
    assert page.count("<polyline") == 3
    assert adapter.digest[:12] in page
    assert loaded == ["smollm2"]
    assert "step 2: loss" in result.stderr


def test_people_read_what_was_gained_and_how_to_use_it(files, loaded, tmp_path):
    result = run("train", tmp_path / "mine", files, *SMALL)
    assert result.exit_code == 0, result.output
    assert "gap closed" in result.stdout
    assert f"--adapter {tmp_path / 'mine' / 'mine.safetensors'}" in result.stdout


def test_a_stores_documents_are_trained_on_with_its_model(folder, files, loaded, tmp_path):
    result = run("train", tmp_path / "mine", files, "--store", folder, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    sources = json.loads(result.stdout)["sources"]
    assert [(s["name"], s["documents"]) for s in sources] == [("s.kvps", 1), ("texts", 4)]
    assert loaded == ["tiny-llama"]


def test_an_unknown_namespace_is_not_there(folder, loaded, tmp_path):
    result = run("train", tmp_path / "mine", "--store", folder, "--namespace", "nobody")
    assert isinstance(result.exception, NotFoundError)


def test_resuming_is_said_and_done(files, loaded, tmp_path):
    run("train", tmp_path / "mine", files, *SMALL)
    again = run("train", tmp_path / "mine", files, *SMALL)
    assert isinstance(again.exception, UsageError)
    more = run("train", tmp_path / "mine", files, *SMALL, "--steps", "3", "--resume", "--json")
    assert json.loads(more.stdout)["steps"] == 3


def test_what_cannot_be_is_refused_before_a_model_is_loaded(files, loaded, tmp_path):
    mine, missing = tmp_path / "mine", tmp_path / "missing"
    (tmp_path / "bad.jsonl").write_text('{"question": "?"}\n')
    for arguments, error, match in (
        ((), UsageError, "nothing to train on"),
        ((missing,), UsageError, "there is no"),
        (("--data", missing), UsageError, "cannot be read"),
        (("--data", tmp_path / "bad.jsonl"), UsageError, "line 1"),
        (("--store", missing), NotFoundError, "missing"),
        ((files, "--dtype", "int8"), UsageError, "int8"),
        ((files, "--steps", "0"), UsageError, "steps is 0"),
    ):
        result = run("train", mine, *arguments)
        assert isinstance(result.exception, error), arguments
        assert match in str(result.exception)
    assert loaded == []
    assert not mine.exists()


def test_a_model_that_is_not_there_is_an_error_of_the_model(files, tmp_path):
    result = run("train", tmp_path / "mine", files, "--model", tmp_path)
    assert isinstance(result.exception, ModelError)
    assert result.exception.exit_code == 5


def test_stopping_says_how_to_go_on(files, loaded, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("kvpacket_store.training.train_adapter", stop)
    result = run("train", tmp_path / "mine", files, *SMALL)
    assert result.exit_code == 130
    assert "--resume" in result.stderr


@pytest.fixture
def adapter():
    table = np.random.default_rng(0).normal(size=(40, 16))
    return Adapter.untrained(table, num_tokens=3)


def test_adapters_of_a_folder_are_listed_with_their_figures(adapter, tmp_path):
    about = {"model": "smollm2", "kl_naive": "0.5", "kl_after": "0.2", "gap_closed": "0.6"}
    save_adapter(adapter, tmp_path / "mine.safetensors", about)
    (tmp_path / "broken.safetensors").write_bytes(b"no safetensors")
    result = run("list", tmp_path, "--json")
    own = [one for one in json.loads(result.stdout)["adapters"] if one["where"] == "folder"]
    broken, mine = own
    assert (mine["name"], mine["digest"], mine["header_tokens"]) == ("mine", adapter.digest, 3)
    assert (mine["model"], mine["kl_after"], mine["gap_closed"]) == ("smollm2", 0.2, 0.6)
    assert "broken" in broken["damage"]
    told = run("list", tmp_path)
    assert adapter.digest[:12] in told.stdout
    assert "60%" in told.stdout


def test_a_header_that_is_left_behind_is_listed_as_such(adapter, tmp_path):
    save_adapter(replace(adapter, header_stays=False), tmp_path / "left.safetensors")
    [left] = [
        one
        for one in json.loads(run("list", tmp_path, "--json").stdout)["adapters"]
        if one["where"] == "folder"
    ]
    assert (left["header_tokens"], left["header_stays"]) == (3, False)
    assert "(3)+3" in run("list", tmp_path).stdout


def test_files_that_are_no_adapters_are_not_listed(files, loaded, tmp_path):
    run("train", tmp_path / "mine", files, *SMALL)
    found = json.loads(run("list", tmp_path / "mine", "--json").stdout)["adapters"]
    assert [one["name"] for one in found if one["where"] == "folder"] == ["mine"]


def test_an_adapter_that_is_not_the_saved_one_is_named(adapter, tmp_path):
    save_adapter(adapter, tmp_path / "mine.safetensors")
    data = (tmp_path / "mine.safetensors").read_bytes()
    (tmp_path / "mine.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = json.loads(run("list", tmp_path, "--json").stdout)["adapters"]
    assert "not those that were saved" in found[-1]["damage"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert isinstance(run("list", tmp_path / "missing").exception, UsageError)


def test_a_page_holds_what_it_is_given():
    report = {
        "digest": "d" * 64, "model": "<m>", "tokens": 16, "steps": 4, "options": {"batch": 8},
        "seconds": 120.0, "dtype": "float32", "ended": "steps", "best_step": 4, "gap_closed": 0.5,
        "kl_naive": 0.5, "sources": [{"name": "<s>", "documents": 3, "questions": 1,
                                      "digest": "e" * 64}],
        "history": [{"step": 0, "loss": 0.6, "kl": 0.6, "seconds": 1.0},
                    {"step": 4, "loss": 0.3, "kl": 0.25, "seconds": 9.0}],
    }  # fmt: skip
    text = adapter_page(report)
    assert "&lt;m&gt;" in text
    assert "&lt;s&gt;" in text
    assert "closes 50%" in text
    assert "<script" not in text
