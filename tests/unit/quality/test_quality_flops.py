"""Operations by formula: what is counted, and that torch counts the same."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kvpacket_store.quality.arm import ARMS, ArmSettings
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.flops import Flops


@pytest.mark.parametrize("kind", ["llama", "qwen3", "phi3"])
def test_a_forward_costs_what_torch_counts_for_its_products(tiny_model, kind):
    """A whole prompt at once; the fused attention is counted without its mask there."""
    model = tiny_model(kind)
    rows, config = 40, model.config
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model.forward(tuple(range(rows)), model.new_cache(rows))
    counted = counter.get_flop_counts()["Global"]
    linear = sum(n for op, n in counted.items() if "scaled_dot" not in str(op))
    width = config.num_attention_heads * model.layout.head_dim
    attention = 4 * width * model.layout.num_layers * rows * (rows + 1) // 2
    rotary = 2 * model.layout.head_dim // 2 * rows  # angles: positions times frequencies
    assert Flops(model).forward(rows, 0) == pytest.approx(linear + attention, abs=rotary * 2)


def test_a_window_bounds_what_is_seen(tiny_model):
    sliding, plain = Flops(tiny_model("mistral")), Flops(tiny_model("llama"))
    assert sliding.rows([0, 47]) == plain.rows([0, 47])
    assert sliding.rows([48]) < plain.rows([48])
    assert sliding.rows([48]) == sliding.rows([500])


def test_parts_add_up(model):
    flops = Flops(model)
    whole = flops.rows(range(7))
    assert whole == flops.rows(range(7), end_layer=1) + flops.rows(range(7), first_layer=1)
    assert whole == flops.rows(range(4)) + flops.rows(range(4, 7))


def test_arms_cost_in_the_order_of_what_they_compute(model, adapter_of, prompt_of):
    settings = ArmSettings(epic_tokens=4, cacheblend_share=0.5)
    arms, prompt = Arms(model, adapter_of(model), settings), prompt_of(model)
    cost = {name: arms.start(name, prompt)().flops for name in ARMS}
    assert cost["naive"] < cost["packet"] < cost["epic"] < cost["cacheblend"] < cost["full"]
    assert cost["ape"] == cost["naive"]
