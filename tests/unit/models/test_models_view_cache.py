"""A packed prompt under a model's own forward: rows may be run again, the view is never written."""

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
    cache = ViewCache(view, model.layout.shape(2), model.dtype, model.device)
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
