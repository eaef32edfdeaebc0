"""``kvps fit-importance`` and ``kvps init --importance``."""

import json

import pytest
from typer.testing import CliRunner

import kvpacket_store as kv
from kvpacket_store.cli.main import app
from kvpacket_store.errors import UsageError


def run(*arguments):
    found = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(found.exception, UsageError):
        raise found.exception
    return found


@pytest.fixture
def two_packets(folder, model, word_embedder):
    with kv.Store.open(folder, model=model, embedder=word_embedder) as store:
        store.ingest([kv.Document(id="b", text="Another one begins in the hills, and is long.")])
    return folder


def test_a_map_is_fitted_and_told_of(two_packets):
    found = run("fit-importance", two_packets)
    assert found.exit_code == 0, found.output
    assert "importance map from 1 packets" in found.output
    assert "kvzap:0.25" in found.output


def test_as_json_it_is_the_report(two_packets):
    report = json.loads(run("fit-importance", two_packets, "--json").stdout)
    assert (report["packets"], report["held_out_packets"]) == (1, 1)
    assert report["path"].startswith(str(two_packets))


def test_one_packet_is_too_few(folder):
    with pytest.raises(UsageError, match="needs two"):
        run("fit-importance", folder)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_store_is_made_with_or_without(wanted, folder, tmp_path):
    flags = ["--importance"] if wanted else []
    found = run("init", tmp_path / "new.kvps", "--adapter", "none", "--json", *flags)
    assert json.loads(found.stdout)["importance"] is wanted
