"""The arms are what they say they are: in their limits they are each other."""

from dataclasses import replace

import pytest
import torch

from kvpacket_store.models import attending
from kvpacket_store.prefill import preamble_adapter
from kvpacket_store.quality.ape import ContextAttention
from kvpacket_store.quality.arm import ARMS, ArmSettings
from kvpacket_store.quality.arms import Arms

# fp32 packets keep what the model computed; sums in another order differ in the last bits
CLOSE = {"rtol": 2e-3, "atol": 2e-3}


@pytest.fixture
def arms_of(adapter_of):
    return lambda model, **settings: Arms(model, adapter_of(model), ArmSettings(**settings))


def test_cacheblend_of_all_tokens_is_a_full_recompute(any_model, arms_of, prompt_of, logits_of):
    prompt = prompt_of(any_model)
    arms = arms_of(any_model, cacheblend_share=1.0)
    full = logits_of(any_model, arms.start("full", prompt))
    blend = logits_of(any_model, arms.start("cacheblend", prompt))
    torch.testing.assert_close(blend, full, **CLOSE)
    naive = logits_of(any_model, arms.start("naive", prompt))
    assert not torch.allclose(naive, full, **CLOSE)


def test_epic_of_all_tokens_is_a_full_recompute(any_model, arms_of, prompt_of, logits_of):
    prompt = prompt_of(any_model)
    arms = arms_of(any_model, epic_tokens=10_000)
    full = logits_of(any_model, arms.start("full", prompt))
    epic = logits_of(any_model, arms.start("epic", prompt))
    torch.testing.assert_close(epic, full, **CLOSE)


def test_without_recomputed_tokens_both_are_naive(model, arms_of, prompt_of, logits_of):
    prompt = prompt_of(model)
    arms = arms_of(model, epic_tokens=0, cacheblend_share=0.0)
    naive = logits_of(model, arms.start("naive", prompt))
    for name in ("epic", "cacheblend"):
        assert torch.equal(logits_of(model, arms.start(name, prompt)), naive)


def test_neutral_ape_is_naive(any_model, arms_of, prompt_of, logits_of):
    prompt = prompt_of(any_model)
    arms = arms_of(any_model, ape_prefix=False, ape_temperature=1.0, ape_scale=1.0)
    naive = logits_of(any_model, arms.start("naive", prompt))
    torch.testing.assert_close(logits_of(any_model, arms.start("ape", prompt)), naive, **CLOSE)
    for changed in ({"ape_temperature": 0.5}, {"ape_scale": 0.5}, {"ape_prefix": True}):
        neutral = {"ape_prefix": False, "ape_temperature": 1.0, "ape_scale": 1.0}
        other = arms_of(any_model, **{**neutral, **changed})
        found = logits_of(any_model, other.start("ape", prompt))
        assert not torch.allclose(found, naive, **CLOSE), changed


def test_ape_of_one_packet_behind_its_prefix_is_a_full_recompute(
    model, arms_of, prompt_of, logits_of
):
    """One packet has nothing beside it: what it saw while it was prefilled is all there is."""
    prompt = prompt_of(model)
    single = type(prompt)(prompt.preamble, prompt.segments[:1], prompt.question, (), prompt.gold, 8)
    arms = arms_of(model, ape_prefix=True, ape_temperature=1.0, ape_scale=1.0)
    full = logits_of(model, arms.start("full", single))
    torch.testing.assert_close(logits_of(model, arms.start("ape", single)), full, **CLOSE)


def test_one_packet_behind_the_preamble_is_a_full_recompute(any_model, prompt_of, logits_of):
    """The adapter that needs no training hides nothing from a single packet."""
    prompt = prompt_of(any_model)
    single = replace(prompt, segments=prompt.segments[:1])
    arms = Arms(any_model, preamble_adapter(any_model))
    full = logits_of(any_model, arms.start("full", single))
    torch.testing.assert_close(logits_of(any_model, arms.start("packet", single)), full, **CLOSE)
    naive = logits_of(any_model, arms.start("naive", single))
    assert not torch.allclose(naive, full, **CLOSE)


def test_a_temperature_sharpens_and_a_scale_moves_weight_to_packets(model):
    """With all keys alike, the weight of the packets is what the formula says."""
    from kvpacket_store.models import AttentionCall

    query, key = torch.zeros(1, 2, 1, 4), torch.zeros(1, 1, 10, 4)
    value = torch.zeros(1, 1, 10, 4)
    value[:, :, 2:8] = 1.0  # packets
    call = AttentionCall(0, query, key, value, 1.0, None)
    plain = ContextAttention(2, 8, 1.0, 1.0)(call)
    torch.testing.assert_close(plain, torch.full_like(plain, 0.6))
    scaled = ContextAttention(2, 8, 0.5, 0.8)(call)
    packets, rest = 6 ** (0.8 * 0.5), 4
    torch.testing.assert_close(scaled, torch.full_like(scaled, packets / (packets + rest)))


def test_a_window_without_packets_sees_the_rest_alone():
    from kvpacket_store.models import AttentionCall

    random = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, 1, 4, generator=random)
    key, value = torch.randn(2, 1, 1, 9, 4, generator=random)
    call = AttentionCall(0, query, key, value, 0.5, 3)
    mixed = ContextAttention(1, 5, 0.9, 0.9)(call)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key[:, :, 6:], value[:, :, 6:], scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(mixed, expected)


def test_packets_have_soft_tokens_and_no_other_arm_has(model, arms_of, prompt_of):
    prompt = prompt_of(model)
    arms = arms_of(model)
    kinds = {name: [s.kind for s in arms.start(name, prompt)().spans] for name in ARMS}
    assert kinds["packet"] == ["preamble", *["header", "body", "trailer"] * 3, "question"]
    for name in ("full", "naive", "epic", "cacheblend", "ape"):
        assert kinds[name] == ["preamble", "body", "body", "body", "question"]
    assert kinds["none"] == ["preamble", "question"]


def test_spans_lie_side_by_side_and_end_where_the_prompt_does(model, arms_of, prompt_of):
    prompt = prompt_of(model)
    for name in ARMS:
        ready = arms_of(model).start(name, prompt)()
        ends = [span.end for span in ready.spans]
        assert [span.start for span in ready.spans] == [0, *ends[:-1]]
        with attending(ready.rule):
            model.forward(ready.input_ids, ready.cache)
        assert ready.cache.length == ends[-1]
        assert ready.cache.num_slots >= ends[-1] + len(prompt.gold)


def test_recomputed_tokens_are_counted(model, arms_of, prompt_of):
    prompt = prompt_of(model)
    arms = arms_of(model, epic_tokens=4, cacheblend_share=0.25)
    counts = {name: arms.start(name, prompt)().recomputed_tokens for name in ARMS}
    total = len(prompt.document_ids)
    assert counts == {
        "full": total,
        "naive": 0,
        "packet": 0,
        "none": 0,
        "epic": 12,
        "cacheblend": round(total / 4),
        "ape": 0,
    }


def test_epic_runs_the_first_tokens_of_every_packet(model, arms_of, prompt_of):
    prompt = prompt_of(model)
    arms = arms_of(model, epic_tokens=4)
    before, after = (arms.start(name, prompt)() for name in ("naive", "epic"))
    end = before.cache.length
    moved = (before.cache.v_slots != after.cache.v_slots)[:, :, :end].any(dim=0).any(dim=0)
    found = moved.any(dim=-1).nonzero().flatten().tolist()
    starts = [span.start for span in before.spans if span.kind == "body"]
    assert found == [start + i for start in starts for i in range(4)]


def test_without_an_adapter_packets_are_naive(model, prompt_of, logits_of):
    from kvpacket_store.adapters import Adapter

    arms = Arms(model, Adapter.none(64))
    prompt = prompt_of(model)
    naive, packet = (logits_of(model, arms.start(n, prompt)) for n in ("naive", "packet"))
    assert torch.equal(naive, packet)


def test_the_chosen_tokens_are_those_that_deviate_most(model, arms_of, prompt_of, monkeypatch):
    """With a deviation of our making, exactly these tokens are run again."""
    prompt = prompt_of(model)
    arms = arms_of(model, cacheblend_share=3 / len(prompt.document_ids))
    first = len(prompt.preamble)
    wanted = [first + 2, first + 20, first + 41]
    before = arms.start("naive", prompt)().cache

    def values(model, ids, layer):
        v = before.v_slots[layer, :, : len(ids)].clone()
        v[:, wanted] += 1
        v[:, :first] += 9  # the preamble is never run again
        return v

    monkeypatch.setattr("kvpacket_store.quality.arms.values_at_layer", values)
    after = arms.start("cacheblend", prompt)().cache
    end = before.length
    moved = (before.v_slots != after.v_slots)[:, :, :end].any(dim=0).any(dim=0).any(dim=-1)
    assert moved.nonzero().flatten().tolist() == wanted
