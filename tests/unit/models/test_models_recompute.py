"""Rows that are run again among K and V that stay."""

import pytest
import torch

from kvpacket_store.models import attending, plain_attention, recompute_rows, values_at_layer

IDS = tuple(i * 37 % 256 for i in range(70))


def joint(model, ids=IDS, room=0):
    cache = model.new_cache(len(ids) + room)
    model.forward(ids, cache)
    return cache


def spoilt(model, start=5):
    """A joint prefill whose K and V from a slot on are something else."""
    cache = joint(model, room=4)
    noise = torch.Generator().manual_seed(1)
    for part in (cache.k_slots, cache.v_slots):
        rows = part[:, :, start : len(IDS)]
        rows += torch.randn(rows.shape, generator=noise)
    return cache


def test_all_rows_again_are_a_joint_prefill(any_model):
    cache, expected = spoilt(any_model), joint(any_model)
    recompute_rows(any_model, cache, IDS[5:], range(5, len(IDS)))
    assert cache.length == len(IDS)
    for mine, theirs in ((cache.k_slots, expected.k_slots), (cache.v_slots, expected.v_slots)):
        torch.testing.assert_close(mine[:, :, : len(IDS)], theirs, rtol=1e-3, atol=1e-3)


def test_the_last_rows_again_are_what_a_forward_appends(any_model):
    """Among spoilt K and V: rows see what is there, not what ought to be."""
    cache = spoilt(any_model)
    appended = spoilt(any_model)
    appended.set_length(60)
    any_model.forward(IDS[60:], appended)
    recompute_rows(any_model, cache, IDS[60:], range(60, 70))
    torch.testing.assert_close(cache.k_slots[:, :, 60:70], appended.k_slots[:, :, 60:70])
    torch.testing.assert_close(cache.v_slots[:, :, 60:70], appended.v_slots[:, :, 60:70])


def test_rows_that_are_not_asked_for_stay(model):
    cache, before = spoilt(model), spoilt(model)
    recompute_rows(model, cache, (IDS[7], IDS[30]), (7, 30))
    recompute_rows(model, cache, (), ())
    same = (cache.k_slots == before.k_slots)[:, :, : len(IDS)].all(dim=(0, 1, 3))
    assert (~same).nonzero().flatten().tolist() == [7, 30]


def test_rows_at_any_slots_are_those_of_a_loop(any_model):
    """Several gaps at once, where the rows between them stay as they were."""
    slots = [6, 7, 20, 21, 22, 50, 69]
    cache, expected = spoilt(any_model), spoilt(any_model)
    recompute_rows(any_model, cache, [IDS[s] for s in slots], slots)
    for slot in slots:  # one after the other: each sees those before it, done
        recompute_rows(any_model, expected, (IDS[slot],), (slot,))
    torch.testing.assert_close(
        cache.v_slots[:, :, :70], expected.v_slots[:, :, :70], rtol=1e-3, atol=1e-3
    )


def test_values_of_a_layer_are_those_of_a_joint_prefill(any_model):
    expected = joint(any_model).v_slots
    for layer in (0, 1, 3):
        found = values_at_layer(any_model, IDS, layer)
        torch.testing.assert_close(found, expected[layer], rtol=1e-3, atol=1e-3)


def test_stopping_at_a_layer_leaves_the_model_as_it_was(model):
    before = joint(model)
    values_at_layer(model, IDS, 1)
    assert torch.equal(joint(model).k_slots, before.k_slots)


def test_a_rule_holds_for_its_block_and_sees_every_layer(any_model):
    seen = []

    def rule(call):
        seen.append((call.layer, call.window))
        return plain_attention(call, torch.ones(1, call.key.shape[2], dtype=torch.bool))

    cache = joint(any_model, room=2)
    plain = any_model.forward((1,), cache)
    cache.set_length(len(IDS))
    with attending(rule):
        ruled = any_model.forward((1,), cache)
    assert [layer for layer, _ in seen] == list(range(any_model.layout.num_layers))
    windows = [layer.sliding_window_tokens for layer in any_model.layout.layers]
    assert [window for _, window in seen] == windows
    if set(windows) == {None}:
        torch.testing.assert_close(ruled, plain, rtol=1e-3, atol=1e-3)
    cache.set_length(len(IDS))
    assert torch.equal(any_model.forward((1,), cache), plain)


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_a_row_in_a_sliding_layer_sees_its_window(tiny_model, kind):
    model = tiny_model(kind)
    cache, other = spoilt(model), spoilt(model)
    other.v_slots[:, :, 0] += 3  # 60 slots before the row, out of the window of 48
    for one in (cache, other):
        recompute_rows(model, one, (IDS[60],), (60,))
    sliding = [i for i, layer in enumerate(model.layout.layers) if layer.sliding_window_tokens]
    changed = (cache.v_slots[:, :, 60] != other.v_slots[:, :, 60]).flatten(1).any(dim=1)
    assert not changed[: sliding[0] + 2].any()  # the layer after the first sliding one hears of it
