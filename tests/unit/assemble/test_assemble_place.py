"""A placed packet is the model's own K and V at that position, bit for bit."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from kvpacket_store.adapters import Adapter
from kvpacket_store.assemble import place, rope_shift
from kvpacket_store.models import tensor_to_bits
from kvpacket_store.prefill import Prefiller

PREAMBLE = tuple(range(200, 211))
SEGMENTS = [tuple(range(5, 38)), tuple(range(60, 81)), tuple(range(90, 150))]
QUESTION = tuple(range(150, 163))


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def assemble(model, prefiller, segments, question=QUESTION):
    header = prefiller.header()
    bodies = [prefiller.segment(s) for s in segments]
    spans = [prefiller.preamble(PREAMBLE)]
    for body in bodies:
        spans += [header, body]
    cache = model.new_cache(sum(span.k.shape[2] for span in spans) + len(question))
    start = 0
    for span in spans:
        place(model, cache, span.k, span.v, kv_dtype=prefiller.kv_dtype, start=start)
        start += span.k.shape[2]
    cache.set_length(start)
    return cache


def block_mask(lengths, question_tokens):
    """Each span sees itself; the question sees everything. Causal throughout."""
    total = sum(lengths) + question_tokens
    mask = torch.ones(total, total, dtype=torch.bool).tril()
    start = 0
    for length in lengths:
        mask[start : start + length, :start] = False
        start += length
    return mask


def test_placed_keys_are_the_models_own_at_that_position(any_model):
    """The model is made to compute the very same pre-RoPE keys at an offset."""
    k, v = any_model.capture(SEGMENTS[0], any_model.new_cache(40))
    start, count = 57, len(SEGMENTS[0])
    cache = any_model.new_cache(start + count)
    bits = [tensor_to_bits(t, any_model.kv_dtype) for t in (k, v)]
    place(any_model, cache, *bits, kv_dtype=any_model.kv_dtype, start=start)
    positions = torch.arange(start, start + count)
    for layer, attention in enumerate(any_model.attentions):
        kind = any_model.layout.layers[layer].rope
        rotary = any_model.rotaries[kind]
        cos, sin = rotary.cos_sin(positions, k)
        _, own = rotary._apply(k[layer : layer + 1, :1], k[layer : layer + 1], cos, sin)
        assert torch.equal(cache.k_slots[layer, :, start:], own[0]), attention
    assert torch.equal(cache.v_slots[:, :, start:], v)


@pytest.mark.parametrize("num_soft", [0, 8])
def test_logits_are_those_of_one_forward_with_the_block_mask(any_model, num_soft):
    """Bound: 5e-3 on logits of spread about 3; the rest is the order of float sums."""
    adapter = Adapter.untrained(any_model.embedding.weight.numpy(), num_tokens=max(num_soft, 1))
    if not num_soft:
        adapter = Adapter.none(adapter.hidden_size)
    prefiller = Prefiller(any_model, adapter)
    cache = assemble(any_model, prefiller, SEGMENTS)
    ours = any_model.forward(QUESTION, cache)[-1]

    soft = [torch.tensor(part) for part in (adapter.header, adapter.trailer)]
    spans = [any_model.embed(PREAMBLE)]
    spans += [torch.cat([soft[0], any_model.embed(s), soft[1]]) for s in SEGMENTS]
    lengths = [len(span) for span in spans]
    mask = block_mask(lengths, len(QUESTION))
    whole = torch.cat([*spans, any_model.embed(QUESTION)])
    reference = _masked_forward(any_model, whole, mask)
    assert (ours - reference).abs().max() < 5e-3
    assert functional.cosine_similarity(ours, reference, dim=0) > 0.99999


def _masked_forward(model, embeddings, mask):
    """Layers with a window see less: the mask is cut by layer type through the model's own dict."""
    from kvpacket_store.models import attention as room

    def windowed(query, key, value, attn_mask, **options):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)

    total = len(mask)
    distance = torch.arange(total)[:, None] - torch.arange(total)[None]
    original = room.grouped_attention

    def attend(module, query, key, value, attention_mask, **options):
        window = options.get("sliding_window")
        allowed = mask if window is None else mask & (distance < window)
        return original(module, query, key, value, allowed[None, None], **options)

    from transformers import AttentionInterface

    AttentionInterface.register(room.ATTENTION_NAME, attend)
    try:
        return model.forward(embeddings, model.new_cache(total))[-1]
    finally:
        room.register_attention()


def test_packets_in_another_order_give_another_prompt_but_the_same_bits_of_values(model):
    prefiller = Prefiller(model, Adapter.none(64))
    forth = assemble(model, prefiller, SEGMENTS)
    back = assemble(model, prefiller, SEGMENTS[::-1])
    assert not torch.equal(model.forward(QUESTION, forth), model.forward(QUESTION, back))
    first = len(PREAMBLE)
    count = len(SEGMENTS[0])
    assert torch.equal(
        forth.v_slots[:, :, first : first + count],
        back.v_slots[:, :, back.length - len(QUESTION) - count : back.length - len(QUESTION)],
    )


def test_no_packet_one_packet_and_repeated_packets_assemble(model):
    prefiller = Prefiller(model, Adapter.none(64))
    for segments in ([], SEGMENTS[:1], [SEGMENTS[0]] * 3):
        cache = assemble(model, prefiller, segments)
        assert torch.isfinite(model.forward(QUESTION, cache)).all()


@pytest.mark.parametrize("delta", [1, 300])
def test_rope_shift_is_close_to_direct_prefill_at_the_offset(any_model, delta):
    """Reference: the model prefills the same tokens alone, told that they stand at the offset.

    RoPE attention looks at differences of positions alone, so every layer's keys are those of
    position 0, rotated on; fp32, four layers.
    """
    tokens, count = torch.tensor([SEGMENTS[0]]), len(SEGMENTS[0])
    at_zero, direct = any_model.new_cache(count), any_model.new_cache(count)
    decoder = any_model.hf.get_decoder()
    for cache, start in ((at_zero, 0), (direct, delta)):
        positions = torch.arange(start, start + count)[None]
        decoder(input_ids=tokens, position_ids=positions, cache=cache, use_cache=True)
    for layer in range(any_model.layout.num_layers):
        rotary = any_model.rotaries[any_model.layout.layers[layer].rope]
        shifted = rope_shift(at_zero.k_slots[layer], delta, rotary.inv_freq)
        bound = 2e-3 * float(direct.k_slots[layer].abs().max())
        assert (shifted - direct.k_slots[layer]).abs().max() < bound


@pytest.mark.parametrize("delta", [0, 1, 300])
def test_rope_shift_is_close_to_the_models_own_rotation(any_model, delta):
    """Reference: the model's own rotation of the same keys at position + delta, fp32."""
    k, _ = any_model.capture(SEGMENTS[0], any_model.new_cache(40))
    count = k.shape[2]
    at_zero = any_model.rotate_keys(k, torch.arange(count))
    direct = any_model.rotate_keys(k, torch.arange(delta, delta + count))
    for layer in range(any_model.layout.num_layers):
        rotary = any_model.rotaries[any_model.layout.layers[layer].rope]
        shifted = rope_shift(at_zero[layer], delta, rotary.inv_freq)
        assert torch.allclose(shifted, direct[layer], atol=5e-4, rtol=1e-4)
        if delta == 0:
            assert torch.equal(shifted, at_zero[layer])


def test_rope_shift_takes_a_delta_for_each_token(model):
    k, _ = model.capture(SEGMENTS[0], model.new_cache(40))
    positions = torch.arange(k.shape[2])
    targets = torch.tensor(np.random.default_rng(0).permutation(k.shape[2]))
    direct = model.rotate_keys(k, targets)
    at_zero = model.rotate_keys(k, positions)
    inv_freq = model.rotaries["full_attention"].inv_freq
    assert torch.allclose(rope_shift(at_zero, targets - positions, inv_freq), direct, atol=5e-4)
