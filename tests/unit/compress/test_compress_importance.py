"""How much slots are needed: the attention that they get while their text is repeated."""

import copy

import pytest
import torch

from kvpacket_store.compress import importance_bytes, importance_from, slot_importance
from kvpacket_store.compress.importance import REPEAT_INSTRUCTION
from kvpacket_store.errors import CodecError

TOKENS = tuple(range(40, 75))


def filled(model, token_ids):
    cache = model.new_cache(len(token_ids))
    model.forward(token_ids, cache)
    return cache


def attention_in_one_forward(model, num_slots, rows):
    """Hugging Face's own attention of ``rows`` over the slots before them, ``[L, Hq, Q, T]``."""
    other = copy.deepcopy(model.hf)  # what it is asked for leaves hooks on its modules
    other.set_attn_implementation("eager")
    with torch.inference_mode():
        ids = torch.tensor([[*TOKENS, *rows]])
        found = other(input_ids=ids, output_attentions=True, use_cache=False).attentions
    return torch.stack([layer[0, :, num_slots:, :num_slots] for layer in found])


def test_it_is_the_largest_attention_of_the_models_own_forward(model):
    rows = (*model.tokenizer.tokenize(REPEAT_INSTRUCTION), *TOKENS)
    attention = attention_in_one_forward(model, len(TOKENS), rows)
    layers, heads = model.layout.num_layers, model.layout.num_kv_heads
    by_head = attention.view(layers, heads, -1, *attention.shape[2:])
    scores = slot_importance(model, filled(model, TOKENS), TOKENS)
    assert scores.shape == (layers, heads, len(TOKENS))
    torch.testing.assert_close(scores, by_head.amax(dim=(2, 3)), atol=1e-5, rtol=1e-4)


def test_a_long_text_is_repeated_in_parts(model, monkeypatch):
    cache = filled(model, TOKENS)
    alone = [slot_importance(model, cache, TOKENS[a : a + 10]) for a in range(0, len(TOKENS), 10)]
    monkeypatch.setattr("kvpacket_store.compress.importance._MOST_ROWS", 10)
    found = slot_importance(model, cache, TOKENS)
    torch.testing.assert_close(found, torch.stack(alone).amax(dim=0))


def test_the_packet_is_not_written_to(model):
    cache = filled(model, TOKENS)
    before = cache.k_slots.clone()
    slot_importance(model, cache, TOKENS)
    assert cache.length == len(TOKENS)
    assert torch.equal(cache.k_slots, before)


def test_bytes_keep_the_order_and_nine_percent():
    scores = torch.rand(2, 3, 50, generator=torch.Generator().manual_seed(0)) ** 8
    back = importance_from(importance_bytes(scores), (2, 3, 50))
    held = scores > 2.0**-31
    assert ((back / scores)[held].log2().abs() <= 1 / 16 + 1e-6).all()
    order = scores.flatten().argsort()
    assert (back.flatten()[order].diff() >= 0).all()


def test_bytes_of_other_slots_are_refused():
    with pytest.raises(CodecError, match="judge them anew"):
        importance_from(b"\0" * 5, (1, 1, 6))
