"""The question on what compression leaves of packets and of a joint cache."""

import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.prefill import BodyKV, Prefiller
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.compressed import as_one_preamble, with_fewer_tokens
from kvpacket_store.quality.packets import PacketSet

DROPPERS = (
    "random",
    "streaming",
    "knorm",
    "keydiff",
    "tova",
    "h2o",
    "scissorhands",
    "expected",
    "snapkv",
)


@pytest.fixture
def starts_of(adapter_of, prompt_of):
    """A function: model → (prompt, starts of packets and of a joint cache, arms)."""

    def make(model):
        prompt, arms = prompt_of(model), Arms(model, adapter_of(model))
        packets = PacketSet(Prefiller(model, adapter_of(model)), prompt)
        joint = PacketSet(Prefiller(model, Adapter.none(64)), as_one_preamble(prompt))
        starts = {"packets": lambda: arms.placed(packets), "joint": lambda: arms.placed(joint)}
        return prompt, starts, arms

    return make


def dropped(model, start, name, prompt):
    return with_fewer_tokens(
        model, start, name, preamble_tokens=len(prompt.preamble), room_tokens=prompt.room_tokens
    )


def test_a_joint_cache_is_a_full_recompute(any_model, starts_of, logits_of):
    prompt, starts, arms = starts_of(any_model)
    full = logits_of(any_model, arms.start("full", prompt))
    torch.testing.assert_close(logits_of(any_model, starts["joint"]), full, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["packets", "joint"])
def test_nothing_removed_changes_nothing(any_model, starts_of, logits_of, kind):
    prompt, starts, _ = starts_of(any_model)
    plain = logits_of(any_model, starts[kind])
    for name in ("exact", "snapkv:1"):
        same = logits_of(any_model, dropped(any_model, starts[kind], name, prompt))
        torch.testing.assert_close(same, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DROPPERS)
def test_the_question_sees_only_what_is_kept(model, starts_of, logits_of, name):
    """What is removed may be anything: spoilt before the second run, it changes nothing."""
    prompt, starts, _ = starts_of(model)
    start = dropped(model, starts["packets"], f"{name}:0.7", prompt)
    ready, whole = start(), starts["packets"]()
    slots = whole.cache.length + len(prompt.question)
    kept = ready.cache.length + len(prompt.question)
    assert kept == round(0.7 * slots)
    assert ready.cache.position_offset == slots - kept
    logits = logits_of(model, start)
    assert not torch.allclose(logits, logits_of(model, starts["packets"]), atol=1e-3)


def test_the_question_is_at_its_own_positions(model, starts_of):
    """Its keys are those of the whole prompt in the first layer, wherever slots were dropped."""
    prompt, starts, _ = starts_of(model)
    whole, small = starts["packets"](), dropped(model, starts["packets"], "random:0.8", prompt)()
    for ready in (whole, small):
        model.forward(ready.input_ids, ready.cache)
    rows = len(prompt.question)
    ends = [ready.cache.length for ready in (whole, small)]
    mine, theirs = (
        ready.cache.k_slots[0, :, end - rows : end]
        for ready, end in zip((whole, small), ends, strict=True)
    )
    torch.testing.assert_close(mine, theirs)


def test_every_part_goes_through_the_change(model, adapter_of, prompt_of):
    prompt, seen = prompt_of(model), []

    def change(part):
        seen.append(part.k.shape[2])
        return BodyKV(part.k, part.v * 0)

    packets = PacketSet(Prefiller(model, adapter_of(model)), prompt, change)
    assert seen == [len(prompt.preamble), 3, *(len(s) + 2 for s in prompt.segments)]
    cache = packets.place()
    assert not cache.v_slots[:, :, : cache.length].any()
