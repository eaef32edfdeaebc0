"""Packets behind others are corrected; the first one, and what stands before it, never."""

import threading

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter, Correction
from kvpacket_store.assemble import Before, Corrector, place, place_layer
from kvpacket_store.errors import AdapterError
from kvpacket_store.models import tensor_to_bits, transfer_to

TOKENS = tuple(i % 250 for i in range(30, 330))


def behind(positions, count=300, seed=3):
    repeats = np.random.default_rng(seed).integers(0, 3, count).astype(np.uint8)
    return Before(positions, repeats)


def corrector_of(model, seed=0, kinds=3):
    layout = model.layout
    shape = (kinds, 2, layout.num_layers, layout.num_kv_heads, layout.head_dim)
    rng = np.random.default_rng(seed)
    maps = 0.1 * rng.standard_normal((*shape, layout.head_dim)).astype(np.float32)
    biases = rng.standard_normal((*shape[:4], 10, layout.head_dim)).astype(np.float32)
    width = int(model.embedding.weight.shape[1])
    correction = Correction(maps, biases, 100)
    return Corrector(Adapter("a", *np.zeros((2, 0, width), np.float32), True, correction), model)


@pytest.mark.parametrize("kinds", [1, 3])
def test_rows_are_changed_by_the_formula(model, kinds):
    corrector = corrector_of(model, kinds=kinds)
    correction = corrector._correction
    k, v = torch.randn(2, model.layout.num_kv_heads, 300, model.layout.head_dim)
    before = behind(300)
    found = corrector.behind(before)(1, k, v)
    first = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    for side, (x, y) in enumerate(zip((k, v), found, strict=True)):
        for token in (0, 1, 3, 63, 64, 299):
            bucket = max(i for i, start in enumerate(first) if token >= start)
            kind = min(before.repeats[token], kinds - 1)
            for head in range(len(x)):
                row = x[head, token].numpy()
                bias = correction.biases[kind, side, 1, head, bucket]
                shift = row @ correction.maps[kind, side, 1, head] + bias
                np.testing.assert_allclose(y[head, token], row + 0.75 * shift, atol=1e-5)


def test_the_first_packet_and_an_adapter_without_one_are_left_alone(model):
    width = int(model.embedding.weight.shape[1])
    assert corrector_of(model).behind(behind(0)) is None
    assert Corrector(Adapter.none(width), model).behind(behind(500)) is None


def test_the_whole_and_layer_by_layer_in_another_thread_give_the_same_bits(any_model):
    """Exact K and V come by another way than those of plain decoding, and must be the same."""
    model = any_model
    k, v = (
        tensor_to_bits(part, model.kv_dtype)
        for part in model.capture(TOKENS, model.new_cache(len(TOKENS)))
    )
    correct = corrector_of(model).behind(behind(120))
    whole, layered = (model.new_cache(len(TOKENS) + 9) for _ in range(2))
    place(model, whole, k, v, kv_dtype=model.kv_dtype, start=9, correct=correct)

    def fill():
        transfer = transfer_to(model, model.kv_dtype)
        for layer in range(model.layout.num_layers):
            place_layer(transfer, layered, layer, k[layer], v[layer], start=9, correct=correct)

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    plain = model.new_cache(len(TOKENS) + 9)
    place(model, plain, k, v, kv_dtype=model.kv_dtype, start=9)
    for side in ("k_slots", "v_slots"):
        slots = [getattr(cache, side)[:, :, 9:] for cache in (whole, layered, plain)]
        assert torch.equal(slots[0], slots[1])
        assert not torch.allclose(slots[0], slots[2], atol=0.1)


def test_a_correction_of_another_model_is_refused(model, tiny_model):
    correction = corrector_of(model)._correction
    other = tiny_model("gemma3")
    width = int(other.embedding.weight.shape[1])
    adapter = Adapter("a", *np.zeros((2, 0, width), np.float32), True, correction)
    with pytest.raises(AdapterError, match="others"):
        Corrector(adapter, other)
