"""Attention to slots held as bytes: as if they were expanded, and the same in any company."""

import numpy as np
import pytest
import torch

from kvpacket_store.compress import PromptKV, parse_compressor
from kvpacket_store.models import CodedSlots, RowWork, ViewCache
from kvpacket_store.models.rows import reference
from kvpacket_store.models.rows.coded import attend_coded
from kvpacket_store.models.rows.micro import LANES

PROMPT = tuple(i % 250 for i in range(3, 60))


def coded_slots(rng, heads, slots, dim):
    codes = rng.integers(0, 256, (heads, slots, dim), np.uint8)
    low, step = rng.standard_normal((2, heads, slots)).astype(np.float32)
    return CodedSlots(codes, low, np.abs(step) / 128)


@pytest.mark.parametrize("dim", [LANES, 64])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("coded", [1, 511, 700])
@pytest.mark.parametrize("first", [0, 510])
def test_as_on_the_expanded_slots_and_alone_as_among_others(dim, group, coded, first):
    rng = np.random.default_rng(coded)
    k, v = (coded_slots(rng, 2, coded, dim) for _ in range(2))
    own = rng.standard_normal((2, 2, first + 5, dim)).astype(np.float32)
    q = rng.standard_normal((5, 2 * group, dim)).astype(np.float32)

    def attended(start, end):
        out = np.empty_like(q[start:end])
        attend_coded(q[start:end], (k, v), (*own, first + start), dim**-0.5, out)
        return out

    together = attended(0, 5)
    whole = [np.concatenate([c.expand(), o], axis=1) for c, o in zip((k, v), own, strict=True)]
    expected = reference.attend(q, *whole, coded + first, dim**-0.5)
    np.testing.assert_allclose(together, expected, rtol=1e-3, atol=2e-4)
    assert np.array_equal(np.concatenate([attended(m, m + 1) for m in range(5)]), together)


@pytest.mark.parametrize("name", ["int8", "knorm:0.5*int8"])
def test_rows_on_a_packed_view_are_those_on_its_expansion(model, name):
    """Nothing is expanded, and only codes and scales are in memory."""
    prompt = model.new_cache(len(PROMPT))
    model.forward(PROMPT, prompt)
    kv = PromptKV(prompt.k_slots, prompt.v_slots, scaling=model.attentions[0].scaling)
    compressor = parse_compressor(name)
    view = compressor.draft_view(kv, compressor.plan(kv))
    assert view.coded(0) is not None
    shape = model.layout.shape(6)
    packed = ViewCache(view, shape, model.slot_dtype, model.device, reads_codes=True)
    dense = model.new_cache(view.num_slots + 6)
    for layer in range(model.layout.num_layers):
        dense.k_slots[layer, :, : view.num_slots], dense.v_slots[layer, :, : view.num_slots] = (
            view.layer(layer)
        )
    dense.set_length(view.num_slots)
    for cache in (packed, dense):
        cache.leave_out(len(PROMPT) - view.num_slots)
    run = model.row_forward()
    for tokens in ((7,), (8, 9, 10), (11,)):
        found, expected = (run((RowWork(c, tokens, len(tokens)),))[0] for c in (packed, dense))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        packed.k_slots[:, :, :5],
        dense.k_slots[:, :, view.num_slots :][:, :, :5],
        rtol=1e-3,
        atol=1e-3,
    )
    assert packed.read_slots < packed.length  # bytes, and two scales of a slot each, for fp32
    own_bytes = packed.k_slots.nbytes + packed.v_slots.nbytes
    assert packed.resident_bytes == view.nbytes + own_bytes


@pytest.mark.parametrize("name", ["int4", "kivi:4", "fp8"])
def test_other_codes_are_expanded(model, name):
    prompt = model.new_cache(len(PROMPT))
    model.forward(PROMPT, prompt)
    kv = PromptKV(prompt.k_slots, prompt.v_slots, scaling=model.attentions[0].scaling)
    compressor = parse_compressor(name)
    view = compressor.draft_view(kv, compressor.plan(kv))
    assert view.coded(0) is None
    cache = ViewCache(view, model.layout.shape(6), model.slot_dtype, model.device, reads_codes=True)
    assert cache.read_slots == cache.length == len(PROMPT)
