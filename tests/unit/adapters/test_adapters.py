"""Header and trailer as a value: digest, files, and what is refused."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file

from kvpacket_store.adapters import Adapter, load_adapter, save_adapter
from kvpacket_store.errors import AdapterError


@pytest.fixture
def adapter():
    random = np.random.default_rng(3)
    return Adapter(
        "demo",
        random.normal(size=(8, 16)).astype(np.float32),
        random.normal(size=(5, 16)).astype(np.float32),
    )


def test_a_file_gives_back_the_same_adapter(adapter, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_adapter(adapter, path, {"trained_on": "nothing"})
    loaded = load_adapter(path)
    assert loaded.digest == adapter.digest
    assert np.array_equal(loaded.header, adapter.header)
    assert np.array_equal(loaded.trailer, adapter.trailer)
    assert loaded.name == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.safetensors"]


@pytest.mark.parametrize("part", ["header", "trailer"])
def test_one_bit_changes_the_digest(adapter, part):
    parts = {"header": adapter.header.copy(), "trailer": adapter.trailer.copy()}
    parts[part].view(np.uint32)[2, 3] ^= 1
    assert Adapter("demo", **parts).digest != adapter.digest


def test_the_digest_knows_where_the_header_ends(adapter):
    both = np.concatenate([adapter.header, adapter.trailer])
    assert Adapter("demo", both[:7].copy(), both[7:].copy()).digest != adapter.digest


def test_a_header_that_is_left_behind_is_another_adapter(adapter, tmp_path):
    left = dataclasses.replace(adapter, header_stays=False)
    assert (left.header_tokens, left.header_slots, adapter.header_slots) == (8, 0, 8)
    assert left.digest != adapter.digest
    save_adapter(left, tmp_path / "left.safetensors", {"header_stays": "yes"})
    loaded = load_adapter(tmp_path / "left.safetensors")
    assert (loaded.digest, loaded.header_stays) == (left.digest, False)


def test_a_file_of_before_has_a_header_that_stays(adapter, tmp_path):
    path = tmp_path / "old.safetensors"
    save_file({"header": adapter.header, "trailer": adapter.trailer}, path)
    assert load_adapter(path).digest == adapter.digest


def test_what_a_later_version_does_with_headers_is_refused(adapter, tmp_path):
    path = tmp_path / "new.safetensors"
    tensors = {"header": adapter.header, "trailer": adapter.trailer}
    save_file(tensors, path, metadata={"header_stays": "sometimes"})
    with pytest.raises(AdapterError, match="sometimes"):
        load_adapter(path)


def test_the_name_does_not_count(adapter):
    assert Adapter("other", adapter.header, adapter.trailer).digest == adapter.digest


def test_soft_tokens_cannot_be_changed(adapter):
    with pytest.raises(ValueError, match="read-only"):
        adapter.header[0, 0] = 1


def test_untrained_tokens_have_the_spread_of_the_embeddings():
    table = np.random.default_rng(0).normal(0.5, 2.0, (1000, 32))
    untrained = Adapter.untrained(table, num_tokens=64, seed=1)
    assert abs(untrained.header.std() - 2.0) < 0.15
    assert untrained.digest == Adapter.untrained(table, num_tokens=64, seed=1).digest
    assert untrained.digest != Adapter.untrained(table, num_tokens=64, seed=2).digest


@pytest.mark.parametrize(
    ("header", "trailer", "message"),
    [
        (np.zeros((2, 4)), np.zeros((2, 4), np.float32), "float32"),
        (np.zeros(4, np.float32), np.zeros((2, 4), np.float32), "float32"),
        (np.zeros((2, 4), np.float32), np.zeros((2, 5), np.float32), "hidden size"),
        (np.full((2, 4), np.nan, np.float32), np.zeros((2, 4), np.float32), "not finite"),
    ],
)
def test_what_is_no_adapter_is_refused(header, trailer, message):
    with pytest.raises(AdapterError, match=message):
        Adapter("bad", header, trailer)


def test_files_that_are_no_adapters_are_refused(tmp_path):
    with pytest.raises(AdapterError, match="not there"):
        load_adapter(tmp_path / "absent.safetensors")
    junk = tmp_path / "junk.safetensors"
    junk.write_bytes(b"\xff" * 100)
    with pytest.raises(AdapterError, match="header"):
        load_adapter(junk)
    other = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros(3)}, other)
    with pytest.raises(AdapterError, match="header"):
        load_adapter(other)
