"""A correction as a value: what it needs to be, its file, and what it does not change."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kvpacket_store.adapters import Adapter, Correction, load_adapter, save_adapter
from kvpacket_store.errors import AdapterError

SHAPE = (3, 2, 3, 2, 8)


def correction(seed=0, half_tokens=150):
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((*SHAPE, 8)).astype(np.float32)
    biases = rng.standard_normal((*SHAPE[:4], 10, 8)).astype(np.float32)
    return Correction(maps, biases, half_tokens)


def soft(**changes):
    rng = np.random.default_rng(7)
    header, trailer = rng.standard_normal((2, 3, 16)).astype(np.float32)
    return replace(Adapter("soft", header, trailer), **changes)


def test_packets_do_not_depend_on_it_and_answers_do():
    plain, corrected = soft(), soft(correction=correction())
    assert corrected.prefill_digest == plain.prefill_digest == plain.digest
    others = [correction(1), correction(half_tokens=151), correction().scaled(0.5)]
    digests = {corrected.digest, plain.digest, *(soft(correction=c).digest for c in others)}
    assert len(digests) == 5
    alone = replace(Adapter.none(16), correction=correction())
    assert (alone.prefill_digest, alone.is_none, Adapter.none(16).is_none) == ("none", False, True)
    assert alone.digest != "none"


@pytest.mark.parametrize("strength", [None, 0.6])
def test_a_file_gives_it_back(tmp_path, strength):
    """Numbers that float16 can hold are kept in it."""
    made = correction() if strength is None else correction().scaled(strength)
    adapter = soft(correction=made, header_stays=False)
    save_adapter(adapter, tmp_path / "a.safetensors")
    found = load_adapter(tmp_path / "a.safetensors")
    assert found.digest == adapter.digest
    assert found.correction.half_tokens == 150
    narrow = load_file(tmp_path / "a.safetensors")["correction_maps"].dtype == np.float16
    assert narrow == (strength is not None)


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        ({"correction_biases": None}, {"half_tokens": "150"}),
        ({"correction_maps": np.zeros((3, 2, 3, 2, 8, 4), np.float32)}, {"half_tokens": "150"}),
        ({"correction_maps": np.full((*SHAPE, 8), np.inf, np.float32)}, {"half_tokens": "150"}),
        ({}, {"half_tokens": "0"}),
        ({}, {"half_tokens": "many"}),
        ({}, {}),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, metadata):
    made = correction()
    tensors = {"correction_maps": made.maps, "correction_biases": made.biases} | change
    tensors |= {"header": np.zeros((1, 16), np.float32), "trailer": np.zeros((0, 16), np.float32)}
    kept = {name: array for name, array in tensors.items() if array is not None}
    save_file(kept, tmp_path / "a.safetensors", metadata=metadata)
    with pytest.raises(AdapterError, match=r"correction|half_tokens|adapter file"):
        load_adapter(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("maps", "biases"),
    [
        (np.zeros((*SHAPE, 8)), np.zeros((*SHAPE[:4], 10, 8), np.float32)),
        (np.zeros((*SHAPE, 8), np.float32), np.zeros((*SHAPE[:4], 9, 8), np.float32)),
        (np.zeros((3, 3, 3, 2, 8, 8), np.float32), np.zeros((3, 3, 3, 2, 10, 8), np.float32)),
        (np.zeros((2, *SHAPE[1:], 8), np.float32), np.zeros((2, *SHAPE[1:4], 10, 8), np.float32)),
        (np.zeros((*SHAPE[1:], 8), np.float32), np.zeros((*SHAPE[1:4], 10, 8), np.float32)),
        (np.zeros(4, np.float32), np.zeros(4, np.float32)),
    ],
)
def test_other_shapes_are_refused(maps, biases):
    with pytest.raises(AdapterError, match="correction"):
        Correction(maps, biases, 150)
