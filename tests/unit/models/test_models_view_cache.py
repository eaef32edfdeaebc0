"""A packed prompt under a model's own forward: rows may be run again, the view is never written."""

import pytest
import torch

from kvpacket_store.compress import PromptKV, parse_compressor
from kvpacket_store.models import ViewCache

PROMPT = tuple(range(3, 60))


def test_rows_of_the_prompt_that_are_run_again_leave_the_view_as_it_is(model):
    prompt = model.new_cache(len(PROMPT) + 1)
    model.forward(PROMPT, prompt)
    kv = PromptKV(*prompt.rows(0, len(PROMPT)), scaling=model.attentions[0].scaling)
    compressor = parse_compressor("int8")
    view = compressor.draft_view(kv, compressor.plan(kv))
    before = [part.clone() for part in view.layer(0)]
    cache = ViewCache(view, model.layout.shape(2), model.slot_dtype, model.device)
    cache.set_length(view.num_slots - 4)
    model.forward(PROMPT[-4:-2], cache)  # all of them in the view
    found = model.forward((*PROMPT[-2:], 100), cache)[-1]
    assert all(map(torch.equal, view.layer(0), before))
    assert cache.length == view.num_slots + 1
    # the own slot has the new token's row, not one of the prompt's
    expected = model.forward((100,), prompt)[-1]
    assert torch.nn.functional.cosine_similarity(found, expected, dim=0) > 0.99
    own = prompt.rows(len(PROMPT), len(PROMPT) + 1)
    assert torch.allclose(cache.k_slots[0][:, :1], own[0][0], atol=1e-3)  # layer 0 knows no context


@pytest.mark.parametrize(("kind", "dtype"), [("gemma3", torch.bfloat16), ("llama", torch.float16)])
@pytest.mark.parametrize("name", ["int8", "int4", "kivi:2", "knorm:0.5*int4", "streaming:0.3*kivi"])
def test_expanded_in_the_slots_dtype_with_rows_behind_it(tiny_model, kind, dtype, name):
    """As if the expanded view were slots; models whose rows are alike: test_models_rows.py."""
    model = tiny_model(kind, dtype)
    prompt = model.new_cache(len(PROMPT))
    model.forward(PROMPT, prompt)
    compressor = parse_compressor(name)
    kv = PromptKV(prompt.k_slots, prompt.v_slots, scaling=model.attentions[0].scaling)
    view = compressor.draft_view(kv, compressor.plan(kv))
    steps = 6
    packed = ViewCache(view, model.layout.shape(steps), model.slot_dtype, model.device)
    dense = model.new_cache(view.num_slots + steps)
    for layer in range(model.layout.num_layers):
        k, v = view.layer(layer)
        assert k.dtype == v.dtype == dtype
        dense.k_slots[layer, :, : view.num_slots] = k
        dense.v_slots[layer, :, : view.num_slots] = v
    dense.set_length(view.num_slots)
    for cache in (packed, dense):
        cache.leave_out(len(PROMPT) - view.num_slots)
    for token in range(100, 100 + steps):
        logits = model.row_step(packed)(token)
        assert logits.isfinite().all()
        assert torch.equal(logits, model.row_step(dense)(token))
    assert torch.equal(packed.k_slots, dense.k_slots[:, :, view.num_slots :])
