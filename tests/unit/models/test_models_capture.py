"""Captured keys are the model's own keys before RoPE, for every supported architecture."""

import pytest
import torch

from kvpacket_store.errors import UnsupportedModelError
from kvpacket_store.models import load_model
from kvpacket_store.types import KVDtype

PROMPT = tuple(range(3, 90))  # longer than the sliding windows of the tiny models


def test_captured_keys_rotated_equal_the_models_own_keys_bit_for_bit(any_model):
    cache = any_model.new_cache(len(PROMPT))
    k, v = any_model.capture(PROMPT, cache)
    rotated = any_model.rotate_keys(k, torch.arange(len(PROMPT)))
    assert torch.equal(rotated, cache.k_slots)
    assert torch.equal(v, cache.v_slots)
    assert not torch.equal(k, cache.k_slots)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_that_holds_in_16_bit(tiny_model, dtype):
    model = tiny_model("llama-yarn", dtype)
    cache = model.new_cache(len(PROMPT))
    k, _ = model.capture(PROMPT, cache)
    assert torch.equal(model.rotate_keys(k, torch.arange(len(PROMPT))), cache.k_slots)


def test_a_bf16_model_computing_in_fp32_is_the_same_model(tiny_model, tmp_path):
    """As on processors that do not multiply in bf16."""
    narrow = tiny_model("llama", torch.bfloat16)
    narrow.hf.save_pretrained(tmp_path)
    narrow.tokenizer.hf.save_pretrained(tmp_path)
    wide = load_model(str(tmp_path), compute=torch.float32)
    native = load_model(str(tmp_path), compute=torch.bfloat16)
    assert (wide.dtype, native.dtype) == (torch.float32, torch.bfloat16)
    assert wide.kv_dtype == native.kv_dtype == KVDtype.BF16
    assert wide.fingerprint == native.fingerprint == narrow.fingerprint
    wide.check_taps()
    ids = PROMPT[:40]
    cache, reference = wide.new_cache(41), narrow.new_cache(41)
    many = [m.forward(ids, c)[-1].float() for m, c in ((wide, cache), (narrow, reference))]
    one = [m.forward((7,), c)[-1].float() for m, c in ((wide, cache), (narrow, reference))]
    for ours, theirs in (many, one):  # 16-bit rounding, 0.4 % a step
        assert torch.nn.functional.cosine_similarity(ours, theirs, dim=0) > 0.995
    assert type(wide.hf.lm_head).__name__ == "TwoWidthLinear"


def test_rotated_keys_at_an_offset_equal_the_keys_that_the_model_writes_there(any_model):
    """The reference is the model's forward at positions 40 and on, fed the same pre-RoPE keys."""
    offset, count = 40, 20
    cache = any_model.new_cache(offset + count)
    any_model.forward(PROMPT[:offset], cache)
    k, _ = any_model.capture(PROMPT[offset : offset + count], cache)
    rotated = any_model.rotate_keys(k, torch.arange(offset, offset + count))
    assert torch.equal(rotated, cache.k_slots[:, :, offset:])


def test_our_attention_gives_the_logits_of_transformers_own(any_model):
    ours = any_model.forward(PROMPT, any_model.new_cache(len(PROMPT)), keep_logits=len(PROMPT))
    any_model.hf.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            theirs = any_model.hf(torch.tensor([PROMPT]), use_cache=False).logits[0]
    finally:
        any_model.hf.set_attn_implementation("kvpacket")
    assert torch.allclose(ours, theirs, atol=2e-4, rtol=2e-4)


def test_decoding_token_by_token_sees_what_one_forward_sees(any_model):
    whole = any_model.forward(PROMPT, any_model.new_cache(len(PROMPT)), keep_logits=len(PROMPT))
    cache = any_model.new_cache(len(PROMPT))
    any_model.forward(PROMPT[:60], cache)
    rows = [any_model.forward((token,), cache)[-1] for token in PROMPT[60:]]
    assert torch.allclose(torch.stack(rows), whole[60:], atol=2e-4, rtol=2e-4)


def test_check_taps_accepts_each_architecture_and_notices_foreign_code(tiny_model, any_model):
    any_model.check_taps()
    model = tiny_model("qwen2")
    hook = model.attentions[1].k_proj.register_forward_hook(lambda m, a, out: out + 1)
    try:
        model.check_taps()  # a hook before ours is part of the projection: still consistent
    finally:
        hook.remove()
    original = model.rotaries["full_attention"]._apply
    model.rotaries["full_attention"]._apply = lambda q, k, cos, sin: (q, k * cos)
    try:
        with pytest.raises(UnsupportedModelError, match="captured before RoPE"):
            model.check_taps()
    finally:
        model.rotaries["full_attention"]._apply = original
