"""The premise of aligned blocks, on every architecture."""

import random

import torch

PROMPT = tuple(range(40, 70))


def test_a_row_does_not_depend_on_what_stands_behind_it_in_its_block(any_model):
    """The premise of blocks: logits, K and V, for every number of known rows."""
    tokens = [random.Random(1).randrange(200) for _ in range(16)]
    cache = any_model.new_cache(len(PROMPT) + 16)
    any_model.forward(PROMPT, cache)

    def run(known):
        cache.set_length(len(PROMPT))
        filled = [*tokens[:known], *[tokens[known - 1]] * (16 - known)]
        return any_model.forward(tuple(filled), cache, keep_logits=16)

    whole, k, v = run(16), cache.k_slots.clone(), cache.v_slots.clone()
    for known in range(1, 16):
        assert torch.equal(run(known)[:known], whole[:known])
        end = len(PROMPT) + known
        assert torch.equal(cache.k_slots[:, :, :end], k[:, :, :end])
        assert torch.equal(cache.v_slots[:, :, :end], v[:, :, :end])
