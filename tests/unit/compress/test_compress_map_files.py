"""Importance maps come back from files, and nothing else is taken for one."""

from importlib import resources

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from kvpacket_store.compress import ImportanceMap, load_map, save_map, shipped_map
from kvpacket_store.errors import UsageError

DIGEST = "ab" * 32


@pytest.fixture
def fitted():
    generator = torch.Generator().manual_seed(0)
    return ImportanceMap(torch.randn(2, 3, 9, generator=generator).double())


def test_a_map_comes_back(fitted, tmp_path):
    save_map(fitted, tmp_path / "m.safetensors", DIGEST, {"packets": "3"})
    back = load_map(tmp_path / "m.safetensors", DIGEST)
    assert torch.equal(back.weights, fitted.weights.float().double())
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_map_of_another_model_is_refused(fitted, tmp_path):
    save_map(fitted, tmp_path / "m.safetensors", DIGEST)
    with pytest.raises(UsageError, match="of another model"):
        load_map(tmp_path / "m.safetensors", "cd" * 32)


@pytest.mark.parametrize("data", [b"", b"not a map", b"\xff" * 100])
def test_what_is_no_map_is_refused(tmp_path, data):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(UsageError, match="cannot be read"):
        load_map(tmp_path / "m.safetensors", DIGEST)


@pytest.mark.parametrize("weights", [torch.zeros(3), torch.full((1, 1, 3), float("nan"))])
def test_weights_that_mean_nothing_are_refused(tmp_path, weights):
    save_file({"weights": weights}, tmp_path / "m.safetensors", {"model_weights": DIGEST})
    with pytest.raises(UsageError, match="has weights"):
        load_map(tmp_path / "m.safetensors", DIGEST)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="fit one with"):
        load_map(tmp_path / "absent.safetensors", DIGEST)


def test_no_map_ships_for_a_model_that_nobody_knows():
    assert shipped_map(DIGEST) is None


def test_each_shipped_map_is_that_of_the_model_that_its_name_says():
    files = [*(resources.files("kvpacket_store.compress") / "maps").iterdir()]
    assert files
    for file in files:
        with resources.as_file(file) as path, safe_open(path, framework="pt") as tensors:
            weights = tensors.metadata()["model_weights"]
        assert file.name == f"{weights[:16]}.safetensors"
        assert shipped_map(weights).weights.shape[2] > 2
