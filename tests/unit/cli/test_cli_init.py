"""``kvps init``: level, layers and codec pack, and what it says of them."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kvpacket_store.cli.main import app
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import UsageError


@pytest.fixture
def init(model, word_embedder, monkeypatch, tmp_path):
    """A function: options → typer's result of ``kvps init``."""
    monkeypatch.setattr("kvpacket_store.api.creation.load_model", lambda name: model)
    monkeypatch.setattr("kvpacket_store.api.store.default_embedder", lambda: word_embedder)

    def run(*options):
        arguments = ["init", str(tmp_path / "s.kvps"), "--kv-dtype", "bf16", *options]
        return CliRunner().invoke(app, arguments)

    return run


@pytest.fixture
def pack(model, tmp_path):
    layout = model.layout
    shape = PackShape(layout.num_layers, layout.num_kv_heads, layout.head_dim, 1)
    made = replace(make_pack(shape), weights=model.fingerprint.weights)
    (tmp_path / "mine.kvc").write_bytes(made.to_bytes())
    return made


@pytest.mark.parametrize(("options", "layers"), [((), 2), (("--layers", "1"), 1)])
def test_linear_takes_a_pack_and_says_in_how_many_layers(init, pack, tmp_path, options, layers):
    file = str(tmp_path / "mine.kvc")
    result = init("--codec", "linear", "--codec-pack", file, *options, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["codec"], report["layers"]) == ("linear", layers)
    assert report["codec_pack"] == pack.digest


def test_the_layers_are_told_to_people(init, pack, tmp_path):
    result = init("--codec", "linear", "--codec-pack", str(tmp_path / "mine.kvc"))
    assert "codec linear in 2 layers, bf16" in result.stdout


def test_the_default_takes_no_pack(init):
    report = json.loads(init("--json").stdout)
    assert (report["layers"], report["codec_pack"]) == (1, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--codec", "linear"), "kvps codec train"),
        (("--codec", "fast", "--layers", "2"), "1 layers"),
        (("--codec", "spec"), "later version"),
        (("--codec", "linear", "--codec-pack", "absent.kvc"), "absent.kvc"),
    ],
)
def test_what_cannot_be_is_a_usage_error(init, tmp_path, options, said):
    error = init(*options).exception
    assert isinstance(error, UsageError)  # exit status 2
    assert said in str(error)
    assert list(tmp_path.iterdir()) == []
