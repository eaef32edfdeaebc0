"""A prompt's tensors fit each other, and RoPE comes off as the model put it on."""

from dataclasses import replace

import pytest
import torch

from kvpacket_store.compress import HalfSplitRope
from kvpacket_store.errors import UsageError


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"v": torch.zeros(3, 2, 119, 16)}, id="v of other length"),
        pytest.param({"k": torch.zeros(3, 2, 0, 16), "v": torch.zeros(3, 2, 0, 16)}, id="empty"),
        pytest.param({"queries": torch.zeros(3, 5, 4, 16)}, id="query heads in no groups"),
        pytest.param({"queries": torch.zeros(2, 6, 4, 16)}, id="queries of other layers"),
        pytest.param({"queries": torch.zeros(3, 6, 121, 16)}, id="more queries than slots"),
        pytest.param({"importance": torch.zeros(3, 2, 119)}, id="importance of other length"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(new_prompt, changes):
    with pytest.raises(UsageError):
        replace(new_prompt(), **changes)


def test_slots_are_those_of_the_whole_prompt(new_prompt):
    prompt = new_prompt()
    once = prompt.narrowed(torch.arange(20, 120).expand(3, 2, -1))
    twice = once.narrowed(torch.tensor([5, 50]).expand(3, 2, -1))
    assert twice.slots[2, 1].tolist() == [25, 70]
    assert torch.equal(twice.k, prompt.k[:, :, [25, 70]])
    assert once.layer(0, torch.tensor([5, 50]).expand(3, 2, -1)).slots[1].tolist() == [25, 70]


def test_a_models_rope_comes_off(any_model):
    """Of every supported family: the model's own rotation, undone and done again."""
    layout, slots = any_model.layout, torch.tensor([0, 1, 77, 1500])
    rotaries = list(any_model.rotaries.values())
    rope = HalfSplitRope([rotary.inv_freq for rotary in rotaries])
    shape = (1, layout.num_kv_heads, 4, layout.head_dim)
    k = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for index, rotary in enumerate(rotaries):
        cos, sin = rotary.cos_sin(slots, k)
        rotated = rotary.rotate(k, cos, sin)[0]
        where = slots.expand(layout.num_kv_heads, 4)
        bare = rope.remove(rotated, where, index)
        # YaRN scales what it rotates, and that stays
        rotary_dim = 2 * rotary.inv_freq.shape[0]
        scale = bare[..., :rotary_dim].norm() / k[..., :rotary_dim].norm()
        torch.testing.assert_close(
            bare[..., :rotary_dim], k[0, ..., :rotary_dim] * scale, rtol=1e-3, atol=2e-3
        )
        assert torch.equal(bare[..., rotary_dim:], rotated[..., rotary_dim:])
        torch.testing.assert_close(rope.apply(bare, where, index), rotated, rtol=1e-4, atol=1e-4)
