"""The importance map finds a linear rule again, on prompts that it was not fitted to."""

from dataclasses import replace

import pytest
import torch

from kvpacket_store.compress import ImportanceMap, parse_compressor
from kvpacket_store.errors import UsageError


def with_rule(prompt):
    """Importance that depends on V and on K before RoPE alone, differently in each head."""
    slots = torch.arange(prompt.num_slots).expand(prompt.k.shape[1:3])
    k = torch.stack([prompt.rope.remove(k, slots, index) for index, k in enumerate(prompt.k)])
    log = 0.1 * k[..., 0] - prompt.v[..., 3] + torch.arange(6.0).view(3, 2, 1)
    return replace(prompt, importance=log.exp())


@pytest.fixture
def fitted(new_prompt):
    prompts = [with_rule(new_prompt(150, seed=seed)) for seed in range(3)]
    return ImportanceMap.fit(prompts, ridge=1e-6)


def test_a_linear_rule_is_found(fitted, new_prompt):
    unseen = with_rule(new_prompt(80, seed=9))
    torch.testing.assert_close(fitted(unseen), unseen.importance.log(), rtol=1e-3, atol=1e-3)


def test_it_keeps_what_importance_itself_would(fitted, new_prompt):
    unseen = with_rule(new_prompt(80, seed=9))
    mapped = parse_compressor("kvzap:0.5", fitted).plan(replace(unseen, importance=None))
    assert torch.equal(mapped.positions, parse_compressor("importance:0.5").plan(unseen).positions)


def test_dropped_slots_keep_their_positions(fitted, new_prompt):
    unseen = with_rule(new_prompt(80, seed=9))
    kept = torch.arange(10, 80, 2).expand(3, 2, -1)
    torch.testing.assert_close(
        fitted(unseen.narrowed(kept)), fitted(unseen).gather(-1, kept), rtol=1e-5, atol=1e-5
    )


def test_a_map_of_another_model_is_refused(fitted, new_prompt):
    with pytest.raises(UsageError, match="two models"):
        fitted(new_prompt(dim=32))


def test_nothing_to_fit_to_is_refused():
    with pytest.raises(UsageError, match="at least one prompt"):
        ImportanceMap.fit([])
