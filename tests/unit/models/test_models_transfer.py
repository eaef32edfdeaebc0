"""K and V on their way to a device: the slots of a CPU, and nothing is read before it is there."""

import threading

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from kvpacket_store.assemble import place, place_layer
from kvpacket_store.errors import SwapFailedError
from kvpacket_store.models import Model, Transfer, tensor_to_bits, transfer_to
from kvpacket_store.models.transfer import PinnedTransfer
from kvpacket_store.types import KVDtype

TOKENS = tuple(range(30, 71))


class Sent:
    """Counts who waited for it."""

    def __init__(self):
        self.waited = 0

    def wait(self):
        self.waited += 1


def captured(model, kv_dtype):
    """The bits of a few tokens' K before RoPE, and V."""
    k, v = model.capture(TOKENS, model.new_cache(len(TOKENS)))
    return [tensor_to_bits(part, kv_dtype) for part in (k, v)]


def filled_both_ways(model, kv_dtype, transfer, start=5):
    """Return slots filled at once by `place`, and layer by layer through a transfer."""
    k, v = captured(model, kv_dtype)
    whole = model.new_cache(start + len(TOKENS))
    place(model, whole, k, v, kv_dtype=kv_dtype, start=start)
    layered = model.new_swap_cache(start + len(TOKENS), kept_from=start + len(TOKENS))
    layered.allocate()
    transfer.begin(layered)
    with transfer.running():
        for layer in range(model.layout.num_layers):
            scratch = [k[layer].copy(), v[layer].copy()]
            place_layer(transfer, layered, layer, *scratch, start=start)
            layered.layer_is_here(layer, transfer.sent())
            for part in scratch:
                part.fill(0)  # a decoder writes its next layer there
    return whole, layered, start


@pytest.mark.parametrize("kv_dtype", list(KVDtype))
def test_layer_by_layer_the_slots_are_those_of_place(any_model, kv_dtype):
    transfer = transfer_to(any_model, kv_dtype)
    assert type(transfer) is Transfer
    assert transfer.sent() is None
    whole, layered, start = filled_both_ways(any_model, kv_dtype, transfer)
    assert torch.equal(layered.k_slots[:, :, start:], whole.k_slots[:, :, start:])
    assert torch.equal(layered.v_slots[:, :, start:], whole.v_slots[:, :, start:])


def test_a_layer_is_waited_for_before_it_is_used(model):
    cache = model.new_swap_cache(8, kept_from=8)
    cache.allocate()
    sent = [Sent() for _ in range(model.layout.num_layers)]
    for layer, arrival in enumerate(sent):
        cache.layer_is_here(layer, arrival)
    assert cache.is_here
    assert [arrival.waited for arrival in sent] == [0] * len(sent)  # nobody reads them yet
    cache.layer_slots(1)
    assert [arrival.waited for arrival in sent] == [0, 1] + [0] * (len(sent) - 2)
    model.forward((5, 6), cache)  # the model's own forward asks each layer
    assert [arrival.waited for arrival in sent] == [1, 2] + [1] * (len(sent) - 2)
    cache.all_is_here(last := Sent())
    cache.layer_slots(0)
    assert last.waited == 1


def test_what_failed_is_not_waited_for(model):
    cache = model.new_swap_cache(8, kept_from=8)
    cache.allocate()
    cache.layer_is_here(0, sent := Sent())
    cache.fail()
    with pytest.raises(SwapFailedError):
        cache.layer_slots(0)
    assert sent.waited == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("kv_dtype", list(KVDtype))
def test_through_pinned_memory_the_slots_are_the_same(tiny_config, tiny_model, kv_dtype):
    """Filled by another thread, while the device is busy; buffers are used many times over."""
    torch.manual_seed(7)
    hf = AutoModelForCausalLM.from_config(tiny_config("llama"), dtype=torch.float32)
    model = Model("tiny-cuda", hf.to("cuda"), tiny_model("llama").tokenizer)
    transfer = transfer_to(model, kv_dtype)
    assert type(transfer) is PinnedTransfer
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        busy = busy @ busy / 4096
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(filled_both_ways(model, kv_dtype, transfer))
    )
    thread.start()
    thread.join()
    whole, layered, start = found
    for layer in range(model.layout.num_layers):
        k, v = layered.layer_slots(layer)
        assert torch.equal(k[:, start:], whole.k_slots[layer, :, start:])
        assert torch.equal(v[:, start:], whole.v_slots[layer, :, start:])
    assert np.isfinite(float(busy.sum()))
