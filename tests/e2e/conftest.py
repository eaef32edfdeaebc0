"""The real model on real text: made once for all end-to-end tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.paragraphs import example_documents, example_questions
from kvpacket_store.cli import main


@pytest.fixture(scope="session")
def smollm2_store(tmp_path_factory):
    """Ten paragraphs in a store of SmolLM2-135M-Instruct."""
    folder = tmp_path_factory.mktemp("smollm2") / "corpus.kvps"
    with Store.create(folder, model="smollm2") as store:
        store.ingest(example_documents()[:10])
        yield store


@pytest.fixture(scope="session")
def smollm2_engine(smollm2_store):
    return Engine(smollm2_store)


@pytest.fixture(scope="session")
def questions():
    return example_questions()


@pytest.fixture(scope="session")
def kvps():
    """A function that runs the installed command in a process of its own: (code, out, err)."""
    command = Path(sys.executable).with_name("kvps")

    def run(*arguments, stdin=None):
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(
            [command, *map(str, arguments)],
            capture_output=True,
            text=True,
            input=stdin,
            env=environment,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return with_json(run)


@pytest.fixture
def kvps_here(monkeypatch, capsys):
    """The same in this process, which has torch and the model's code loaded already."""
    monkeypatch.setattr(sys.modules[main.__module__], "_collect_rarely", lambda: None)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvps", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return with_json(run)


def with_json(run):
    """Give a runner ``json``: what a command that succeeds prints, read."""

    def run_json(*arguments, **stdin):
        code, out, err = run(*arguments, "--json", **stdin)
        assert code == 0, err
        return json.loads(out)

    run.json = run_json
    return run
