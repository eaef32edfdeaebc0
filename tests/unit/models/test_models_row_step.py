"""The short way for one row gives the bits of the model's own forward."""

import pytest
import torch

from kvpacket_store.compress import PromptKV, parse_compressor
from kvpacket_store.errors import ContextOverflowError
from kvpacket_store.models import ViewCache, load_model
from kvpacket_store.models.row_step import RowStep, has_row_step

PROMPT = tuple(range(3, 60))
LLAMA_LIKE = ["llama", "llama-linear", "llama-llama3", "llama-yarn", "qwen2", "qwen3"]


def both_ways(model, steps=12):
    """Run the same tokens both ways; yield the logits, then compare the caches."""
    caches = [model.new_cache(len(PROMPT) + steps) for _ in range(2)]
    for cache in caches:
        model.forward(PROMPT, cache)
    fast = RowStep(model)
    for token in range(100, 100 + steps):
        yield fast(token, caches[0]), model.forward((token,), caches[1])[-1]
    assert torch.equal(caches[0].k_slots, caches[1].k_slots)
    assert torch.equal(caches[0].v_slots, caches[1].v_slots)
    assert caches[0].length == caches[1].length


@pytest.mark.parametrize("kind", LLAMA_LIKE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_bits_for_each_llama_like_model(tiny_model, kind, dtype):
    model = tiny_model(kind, dtype)
    assert has_row_step(model)
    for fast, reference in both_ways(model):
        assert torch.equal(fast, reference)


def test_equal_bits_where_rows_go_through_the_narrow_weights(tiny_model, tmp_path):
    narrow = tiny_model("qwen2", torch.bfloat16)
    narrow.hf.save_pretrained(tmp_path)
    narrow.tokenizer.hf.save_pretrained(tmp_path)
    for fast, reference in both_ways(load_model(str(tmp_path), compute=torch.float32)):
        assert torch.equal(fast, reference)


@pytest.mark.parametrize("kind", ["gemma3", "mistral", "phi3"])
def test_other_architectures_go_through_their_own_forward(tiny_model, kind):
    model = tiny_model(kind)
    assert not has_row_step(model)
    assert not model.rows_are_alike
    caches = [model.new_cache(len(PROMPT) + 1) for _ in range(2)]
    for cache in caches:
        model.forward(PROMPT, cache)
    reference = model.forward((7,), caches[1])[-1]
    assert torch.equal(model.row_step(caches[0])(7), reference)


def test_a_wrapped_projection_is_not_skipped(tiny_model):
    model = tiny_model("llama")
    hook = model.attentions[0].q_proj.register_forward_hook(lambda m, a, out: out)
    try:
        assert not has_row_step(model)
    finally:
        hook.remove()
    assert has_row_step(model)


def test_a_full_cache_says_so(model):
    cache = model.new_cache(len(PROMPT))
    model.forward(PROMPT, cache)
    with pytest.raises(ContextOverflowError, match="more room"):
        model.row_step(cache)(5)
    assert cache.length == len(PROMPT)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["int8", "int4", "kivi:2", "knorm:0.5*int4", "streaming:0.3*kivi"])
def test_equal_bits_on_a_packed_view(tiny_model, kind, dtype, name):
    """The view is expanded in the model's dtype, and rows behind it are kept."""
    model = tiny_model(kind, dtype)
    prompt = model.new_cache(len(PROMPT))
    model.forward(PROMPT, prompt)
    compressor = parse_compressor(name)
    kv = PromptKV(prompt.k_slots, prompt.v_slots, scaling=model.attentions[0].scaling)
    view = compressor.draft_view(kv, compressor.plan(kv))
    steps = 6
    packed = [
        ViewCache(view, model.layout.shape(steps), model.dtype, model.device) for _ in range(2)
    ]
    dense = model.new_cache(view.num_slots + steps)
    for layer in range(model.layout.num_layers):
        k, v = view.layer(layer)
        assert k.dtype == v.dtype == dtype
        dense.k_slots[layer, :, : view.num_slots] = k
        dense.v_slots[layer, :, : view.num_slots] = v
    dense.set_length(view.num_slots)
    for cache in (*packed, dense):
        cache.leave_out(len(PROMPT) - view.num_slots)
    step = RowStep(model)
    for token in range(100, 100 + steps):
        logits = step(token, packed[0])
        assert torch.equal(logits, model.forward((token,), packed[1])[-1])
        assert torch.equal(logits, step(token, dense))
    for rows in (packed[0].k_slots, packed[0].v_slots):
        assert rows.isfinite().all()
    assert torch.equal(packed[0].k_slots, dense.k_slots[:, :, view.num_slots :])
