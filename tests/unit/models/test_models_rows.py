"""Rows of several requests in one forward: near the model's own, the same bits in any company."""

import copy

import numpy as np
import pytest
import torch

from kvpacket_store.errors import CancelledError, ContextOverflowError
from kvpacket_store.models import Model, RowWork, cancellable, load_model
from kvpacket_store.models.rows import RowForward, kernels, reference
from kvpacket_store.models.rows.micro import LANES

LLAMA_LIKE = ["llama", "llama-linear", "llama-llama3", "llama-yarn", "qwen2", "qwen3"]
PROMPT = tuple(i % 250 for i in range(3, 60))
TOKENS = tuple((7 * i) % 250 for i in range(16))


def prompted(model, length=57, room=40):
    cache = model.new_cache(length + room)
    model.forward(PROMPT[:length], cache)
    return cache


@pytest.fixture(params=LLAMA_LIKE)
def alike(request, tiny_model):
    model = tiny_model(request.param)
    assert model.rows_are_alike
    return model


def test_near_the_models_own_forward(alike):
    caches = [prompted(alike) for _ in range(2)]
    own = alike.forward(TOKENS, caches[1], keep_logits=len(TOKENS))
    rows = alike.row_forward()((RowWork(caches[0], TOKENS, len(TOKENS)),))[0]
    torch.testing.assert_close(rows, own, rtol=1e-4, atol=1e-4)
    end = len(PROMPT) + len(TOKENS)
    keys = [cache.k_slots[:, :, :end] for cache in caches]
    torch.testing.assert_close(*keys, rtol=1e-4, atol=1e-4)
    assert caches[0].length == caches[1].length == end


def test_a_row_has_the_same_bits_alone_among_others_and_beside_neighbours(alike):
    run = alike.row_forward()
    alone, together, beside = (prompted(alike) for _ in range(3))
    singles = torch.cat([run((RowWork(alone, (token,)),))[0] for token in TOKENS])
    many = run((RowWork(together, TOKENS, len(TOKENS)),))[0]
    neighbour = prompted(alike, 21)
    _, mixed = run((RowWork(neighbour, TOKENS[:5]), RowWork(beside, TOKENS, len(TOKENS))))
    for logits, cache in ((many, together), (mixed, beside)):
        assert torch.equal(logits, singles)
        end = len(PROMPT) + len(TOKENS)
        assert torch.equal(cache.k_slots[:, :, :end], alone.k_slots[:, :, :end])
        assert torch.equal(cache.v_slots[:, :, :end], alone.v_slots[:, :, :end])


def test_narrow_weights_are_used_as_they_lie(tiny_model, tmp_path):
    narrow = tiny_model("qwen2", torch.bfloat16)
    narrow.hf.save_pretrained(tmp_path)
    narrow.tokenizer.hf.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), compute=torch.float32)
    assert model.rows_are_alike
    caches = [prompted(model) for _ in range(2)]
    own = model.forward(TOKENS, caches[1], keep_logits=len(TOKENS))
    rows = model.row_forward()((RowWork(caches[0], TOKENS, len(TOKENS)),))[0]
    torch.testing.assert_close(rows, own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", LLAMA_LIKE)
def test_where_prompts_run_in_bf16_rows_run_in_fp32(tiny_model, kind):
    """The same weights: on the same slots, the bits of a model that is fp32 all over."""
    narrow = tiny_model(kind, torch.bfloat16)
    wide = Model("wide", copy.deepcopy(narrow.hf).float(), narrow.tokenizer)
    assert narrow.rows_are_alike
    assert narrow.dtype == torch.bfloat16
    caches = [prompted(narrow) for _ in range(3)]
    assert caches[0].k_slots.dtype == torch.float32
    rows = narrow.row_forward()((RowWork(caches[0], TOKENS, len(TOKENS)),))[0]
    assert torch.equal(rows, wide.row_forward()((RowWork(caches[1], TOKENS, len(TOKENS)),))[0])
    own = wide.forward(TOKENS, caches[2], keep_logits=len(TOKENS))
    torch.testing.assert_close(rows, own, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["gemma3", "mistral", "phi3"])
def test_other_architectures_go_through_their_own_forward(tiny_model, kind):
    model = tiny_model(kind)
    assert not model.rows_are_alike
    caches = [prompted(model) for _ in range(2)]
    reference = model.forward((7,), caches[1])[-1]
    assert torch.equal(model.row_step(caches[0])(7), reference)


def test_the_number_of_threads_changes_nothing(alike):
    import numba

    before = numba.get_num_threads()
    found = []
    for threads in {1, before}:
        numba.set_num_threads(threads)
        found.append(alike.row_forward()((RowWork(prompted(alike), TOKENS, 3),))[0])
    numba.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)


def test_a_wrapped_projection_is_not_skipped(tiny_model):
    model = tiny_model("llama")
    hook = model.attentions[0].q_proj.register_forward_hook(lambda m, a, out: out)
    try:
        assert not model.rows_are_alike
    finally:
        hook.remove()
    assert model.rows_are_alike


def test_a_prefill_on_another_thread_is_no_wrapping(model):
    """Its taps hang on the model's modules for as long as its forward runs."""
    import threading

    done = threading.Event()

    def prefill():
        while not done.is_set():
            model.capture(PROMPT, model.new_cache(len(PROMPT)))

    thread = threading.Thread(target=prefill)
    thread.start()
    found = {model.rows_are_alike for _ in range(200)}
    done.set()
    thread.join()
    assert found == {True}


def test_positions_without_slots_are_counted(model):
    """A draft's cache that dropped tokens: what is kept stays at its position."""
    full = prompted(model)
    part = model.new_cache(60)
    kept = torch.tensor([0, 1, 2, *range(20, len(PROMPT))])
    part.k_slots[:, :, : len(kept)] = full.k_slots[:, :, kept]
    part.v_slots[:, :, : len(kept)] = full.v_slots[:, :, kept]
    part.set_length(len(kept))
    part.leave_out(len(PROMPT) - len(kept))
    short = RowForward(model).run((RowWork(part, (9,)),))[0]
    own = model.new_cache(60)
    own.k_slots.copy_(part.k_slots[:, :, :60])
    own.v_slots.copy_(part.v_slots[:, :, :60])
    own.set_length(len(kept))
    own.leave_out(len(PROMPT) - len(kept))
    torch.testing.assert_close(short, model.forward((9,), own), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(short, RowForward(model).run((RowWork(full, (9,)),))[0], atol=1e-2)


def test_a_full_cache_says_so(model):
    cache = prompted(model, room=2)
    with pytest.raises(ContextOverflowError, match="more room"):
        model.row_forward()((RowWork(cache, (5, 6, 7)),))


def test_cancelling_stops_between_layers(model):
    import threading

    event = threading.Event()
    event.set()
    with cancellable(event), pytest.raises(CancelledError):
        model.row_forward()((RowWork(prompted(model), (5,)),))


SHAPES = [(1, 1), (3, 511), (2, 512), (5, 513), (4, 1500)]


@pytest.mark.parametrize(("rows", "first"), SHAPES, ids=str)
def test_attention_is_that_of_the_reference(rows, first):
    rng = np.random.default_rng(rows)
    q = rng.standard_normal((rows, 6, 16), np.float32) * 3
    k, v = (rng.standard_normal((2, first + rows, 16), np.float32) for _ in range(2))
    spans = -(-(first + rows) // kernels.SPAN_SLOTS)
    out, parts = np.empty_like(q), np.empty((2, spans, rows * 3, 18), np.float32)
    kernels.attend(q, k, v, first, 0.25, parts, out)
    np.testing.assert_allclose(out, reference.attend(q, k, v, first, 0.25), atol=2e-5)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("outputs", [1, 16, 37])
def test_maps_are_those_of_the_reference(dtype, outputs):
    rng = np.random.default_rng(outputs)
    x = rng.standard_normal((3, 5 * LANES), np.float32)
    wide = [rng.standard_normal((outputs, 5 * LANES), np.float32) for _ in range(3)]
    weights = [(w.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else w for w in wide]
    bias, none = rng.standard_normal(outputs, np.float32), np.empty(0, np.float32)
    out = np.ones((3, outputs), np.float32)
    kernels.linear(x, weights[0], bias, out)
    np.testing.assert_allclose(out, 1 + reference.linear(x, weights[0], bias), atol=1e-4)
    kernels.gate_up(x, weights[1], weights[2], out)
    np.testing.assert_allclose(out, reference.gate_up(x, weights[1], weights[2]), atol=1e-3)
    outs = tuple(np.empty((3, outputs), np.float32) for _ in range(3))
    kernels.qkv(x, tuple(weights), (none, bias, none), outs)
    for found, weight, b in zip(outs, weights, (none, bias, none), strict=True):
        np.testing.assert_allclose(found, reference.linear(x, weight, b), atol=1e-4)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (16, 8), (37, 5), (50, 13)])
def test_a_row_of_a_map_has_the_same_bits_in_any_number_of_rows(dtype, outputs, inputs):
    """Groups of 4, 2 and 1 rows, outputs that fill no group, inputs that fill no line."""
    rng = np.random.default_rng(outputs)
    x = rng.standard_normal((9, inputs * LANES), np.float32)
    wide = rng.standard_normal((outputs, inputs * LANES), np.float32)
    weight = (wide.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else wide
    none = np.empty(0, np.float32)

    def mapped(rows):
        added, gated = np.zeros((2, len(rows), outputs), np.float32)
        kernels.linear(rows, weight, none, added)
        kernels.gate_up(rows, weight, weight, gated)
        return np.stack([added, gated], axis=1)

    alone = np.concatenate([mapped(x[m : m + 1]) for m in range(9)])
    for rows in range(2, 10):
        assert np.array_equal(mapped(x[:rows]), alone[:rows])
        assert np.array_equal(mapped(x[9 - rows :]), alone[9 - rows :])


@pytest.mark.parametrize("dim", [LANES, 5 * LANES, 64])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("first", [0, 29, 507, 1020])
def test_a_row_attends_with_the_same_bits_among_others(dim, group, first):
    """Over the ends of blocks and spans, with groups of rows that see different slots."""
    rng = np.random.default_rng(dim)
    q = rng.standard_normal((9, 2 * group, dim), np.float32)
    k, v = (rng.standard_normal((2, first + 9, dim), np.float32) for _ in range(2))

    def attended(start, end):
        spans = -(-(first + end) // kernels.SPAN_SLOTS)
        parts = np.empty((2, spans, (end - start) * group, dim + 2), np.float32)
        out = np.empty_like(q[start:end])
        kernels.attend(q[start:end], k, v, first + start, dim**-0.5, parts, out)
        return out

    alone = np.concatenate([attended(m, m + 1) for m in range(9)])
    np.testing.assert_allclose(
        alone, reference.attend(q, k, v, first, dim**-0.5), rtol=1e-4, atol=2e-5
    )
    for rows in range(2, 10):
        assert np.array_equal(attended(0, rows), alone[:rows])
        assert np.array_equal(attended(9 - rows, 9), alone[9 - rows :])


def test_sizes_that_fill_no_vector_are_left_to_the_library(model, monkeypatch):
    assert model.rows_are_alike
    monkeypatch.setattr(model.hf.get_decoder().layers[0].mlp.down_proj, "in_features", 36)
    assert not model.rows_are_alike


def test_norm_and_rotation_are_those_of_the_reference():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((4, 32), np.float32), rng.standard_normal(32, np.float32)
    out = np.empty_like(x)
    kernels.norm(x, weight, 1e-5, out)
    np.testing.assert_allclose(out, reference.norm(x, weight, 1e-5), rtol=1e-5)
    q, k, v = (rng.standard_normal((4, heads, 8), np.float32) for heads in (6, 2, 2))
    cos_sin = rng.standard_normal((2, 4, 8)).astype(np.float32)
    k_slots, v_slots = np.zeros((2, 9, 8), np.float32), np.zeros((2, 9, 8), np.float32)
    expected = reference.rotated(q, *cos_sin)
    kernels.place(q, k, v, cos_sin, k_slots, v_slots, 3)
    np.testing.assert_allclose(q, expected, atol=1e-5)
    rotated = reference.rotated(k, *cos_sin)
    np.testing.assert_allclose(k_slots[:, 3:7], rotated.swapaxes(0, 1), atol=1e-5)
    assert np.array_equal(v_slots[:, 3:7], v.swapaxes(0, 1))
    assert not k_slots[:, :3].any()
    assert not k_slots[:, 7:].any()
