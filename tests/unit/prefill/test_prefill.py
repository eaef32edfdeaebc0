"""Prefilling is canonical: the same tokens give the same bits, whatever else is prefilled."""

import dataclasses

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.errors import AdapterError, ContextOverflowError
from kvpacket_store.models import bits_to_tensor
from kvpacket_store.packet import packet_key
from kvpacket_store.prefill import Prefiller
from kvpacket_store.types import KVDtype

SEGMENT = tuple(range(5, 70))
OTHERS = [tuple(range(10, 10 + n)) for n in (1, 2, 31, 100, 33)]


def untrained(model, num_tokens=8):
    return Adapter.untrained(model.embedding.weight.numpy(), num_tokens=num_tokens)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def equal(a, b):
    return np.array_equal(a.k, b.k) and np.array_equal(a.v, b.v)


def test_prefilling_again_gives_the_same_bits_whatever_came_between(any_model):
    prefiller = Prefiller(any_model, untrained(any_model))
    first = prefiller.segment(SEGMENT)
    for other in OTHERS:
        prefiller.segment(other)
    assert equal(prefiller.segment(SEGMENT), first)
    assert equal(Prefiller(any_model, untrained(any_model)).segment(SEGMENT), first)


def test_body_on_header_is_what_one_forward_over_everything_gives(any_model):
    adapter = untrained(any_model)
    prefiller = Prefiller(any_model, adapter)
    soft = [torch.tensor(part) for part in (adapter.header, adapter.trailer)]
    whole = torch.cat([soft[0], any_model.embed(SEGMENT), soft[1]])
    k, v = any_model.capture(whole, any_model.new_cache(len(whole)))
    header, body = prefiller.header(), prefiller.segment(SEGMENT)
    for ours, reference in ((header.k, k[:, :, :8]), (body.k, k[:, :, 8:]), (body.v, v[:, :, 8:])):
        assert torch.allclose(bits_to_tensor(ours, KVDtype.FP32), reference, atol=2e-4, rtol=2e-3)


def test_a_header_that_is_left_behind_shapes_the_body_and_takes_no_slot(any_model):
    stays = Prefiller(any_model, untrained(any_model))
    left = Prefiller(any_model, dataclasses.replace(stays.adapter, header_stays=False))
    assert left.header().k.shape == left.header().v.shape == any_model.layout.shape(0)
    assert equal(left.segment(SEGMENT), stays.segment(SEGMENT))
    assert left.segment_key(SEGMENT) != stays.segment_key(SEGMENT)


def test_without_an_adapter_the_packet_is_the_segment_alone(model):
    prefiller = Prefiller(model, Adapter.none(64))
    assert prefiller.header().k.shape == model.layout.shape(0)
    assert prefiller.segment(SEGMENT).k.shape == model.layout.shape(len(SEGMENT))


@pytest.mark.parametrize("kv_dtype", list(KVDtype))
def test_each_kv_dtype_is_the_models_kv_rounded_once(model, kv_dtype):
    exact = Prefiller(model, Adapter.none(64)).segment(SEGMENT)
    rounded = Prefiller(model, Adapter.none(64), kv_dtype).segment(SEGMENT)
    assert rounded.k.dtype == kv_dtype.bits_dtype
    expected = bits_to_tensor(exact.k, KVDtype.FP32)
    found = bits_to_tensor(rounded.k, kv_dtype)
    assert torch.equal(found.float(), expected.to(found.dtype).float())


def test_every_part_of_the_recipe_is_in_the_key(model, tiny_model):
    none = Prefiller(model, Adapter.none(64))
    keys = {
        none.segment_key(SEGMENT),
        none.segment_key(SEGMENT[:-1]),
        Prefiller(model, Adapter.none(64), KVDtype.BF16).segment_key(SEGMENT),
        Prefiller(model, untrained(model)).segment_key(SEGMENT),
        Prefiller(model, untrained(model, 4)).segment_key(SEGMENT),
        Prefiller(tiny_model("llama-linear"), Adapter.none(64)).segment_key(SEGMENT),
        Prefiller(tiny_model("qwen2"), Adapter.none(64)).segment_key(SEGMENT),
        packet_key(none.identity("preamble", SEGMENT)),
    }
    assert len(keys) == 8


def test_the_preamble_does_not_depend_on_the_adapter(model):
    keys = {
        packet_key(Prefiller(model, adapter).identity("preamble", SEGMENT))
        for adapter in (Adapter.none(64), untrained(model))
    }
    assert len(keys) == 1


def test_an_adapter_of_another_width_is_refused(model):
    with pytest.raises(AdapterError, match="hidden size 32"):
        Prefiller(model, Adapter.none(32))


def test_a_segment_longer_than_the_model_is_refused(model):
    with pytest.raises(ContextOverflowError, match="shorter segments"):
        Prefiller(model, Adapter.none(64)).segment((1,) * 2049)


def test_the_engine_says_so_where_attention_is_wider_than_the_rest(tiny_model):
    """Packets of another engine are not compared bit for bit."""
    narrow, wide = (tiny_model("llama", dtype) for dtype in (torch.bfloat16, torch.float32))
    none = Adapter.none(int(narrow.embedding.weight.shape[1]))
    assert "torch.bfloat16 attention torch.float32" in Prefiller(narrow, none).engine
    assert "attention" not in Prefiller(wide, none).engine
