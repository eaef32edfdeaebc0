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

    def run_json(*arguments, stdin=None):
        code, out, err = run(*arguments, "--json", stdin=stdin)
        assert code == 0, err
        return json.loads(out)

    run.json = run_json
    return run
