"""What every compressor promises, whatever it keeps: one suite over all names and some products."""

from dataclasses import fields, is_dataclass

import pytest
import torch

from kvpacket_store.compress import ImportanceMap, compressor_names, parse_compressor
from kvpacket_store.compress.views import DenseView

DROPPERS = [
    "expected:0.3",
    "h2o:0.3",
    "importance:0.3",
    "keydiff:0.3",
    "knorm:0.3",
    "kvzap:0.3",
    "random:0.3",
    "scissorhands:0.3",
    "snapkv:0.3",
    "streaming:0.3",
    "tova:0.3",
]
QUANTISERS = ["fp8", "int4", "int8", "kivi:2", "kivi:4", "kvquant:2", "kvquant:4"]
PRODUCTS = ["snapkv:0.3*int8", "importance:0.5*kvquant:4", "streaming:0.6*keydiff:0.5*kivi:2"]
ALL = ["exact", "noise:0.2", *DROPPERS, *QUANTISERS, *PRODUCTS]
DTYPES = [torch.float32, torch.bfloat16]

every_compressor = pytest.mark.parametrize("name", ALL)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])


@pytest.fixture
def parse(new_prompt):
    fitted = ImportanceMap.fit([new_prompt(seed=5)])
    return lambda name: parse_compressor(name, fitted)


def tensors_of(held):
    """All tensors that an object holds, found without asking it."""
    if isinstance(held, torch.Tensor):
        return [held]
    if isinstance(held, tuple | list):
        return [tensor for part in held for tensor in tensors_of(part)]
    if is_dataclass(held):
        parts = [getattr(held, f.name) for f in fields(held) if f.name != "rope"]
        return tensors_of(parts)
    return []


def resident_bytes(view):
    storages = [tensor.untyped_storage() for tensor in tensors_of(view)]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def bits_of(tensor):
    return tensor.contiguous().view(torch.uint8)


def test_every_name_is_covered():
    parts = {part.partition(":")[0] for name in ALL for part in name.split("*")}
    assert parts == set(compressor_names())


@every_dtype
@every_compressor
def test_equal_prompts_give_equal_bits(parse, new_prompt, name, dtype):
    views = []
    for _ in range(2):
        prompt, compressor = new_prompt(dtype=dtype), parse(name)
        views.append(compressor.draft_view(prompt, compressor.plan(prompt)))
    one, other = (tensors_of(view) for view in views)
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert torch.equal(bits_of(a), bits_of(b))
    for index in range(3):
        for a, b in zip(views[0].layer(index), views[1].layer(index), strict=True):
            assert torch.equal(bits_of(a), bits_of(b))


@every_dtype
@every_compressor
def test_the_prompt_is_only_read(parse, new_prompt, name, dtype):
    prompt, untouched = new_prompt(dtype=dtype), new_prompt(dtype=dtype)
    view = parse(name).draft_view(prompt, parse(name).plan(prompt))
    view.layer(0)
    for own, kept in zip(tensors_of(prompt), tensors_of(untouched), strict=True):
        assert torch.equal(own, kept)


@every_dtype
@every_compressor
def test_rows_have_one_shape_and_the_prompts_dtype(parse, new_prompt, name, dtype):
    prompt, compressor = new_prompt(dtype=dtype), parse(name)
    plan = compressor.plan(prompt)
    view = compressor.draft_view(prompt, plan)
    assert view.num_slots == round(plan.kept_share * prompt.num_slots)
    for index in range(3):
        for rows in view.layer(index):
            assert rows.shape == (2, view.num_slots, 16)
            assert rows.dtype == dtype
            assert rows.isfinite().all()


@every_compressor
def test_kept_positions_ascend_and_hold_the_first_and_recent_ones(parse, new_prompt, name):
    prompt = new_prompt()
    plan = parse(name).plan(prompt)
    if plan.positions is None:
        assert plan.kept_share == 1
        return
    positions = plan.positions
    assert positions.dtype == torch.int64
    assert positions.shape == (3, 2, round(plan.kept_share * 120))
    assert (positions.diff(dim=-1) > 0).all()
    assert positions[..., :4].tolist() == [[[0, 1, 2, 3]] * 2] * 3
    assert positions[..., -6:].tolist() == [[[*range(114, 120)]] * 2] * 3


@every_dtype
@pytest.mark.parametrize("name", DROPPERS)
def test_a_droppers_view_is_a_gather(parse, new_prompt, name, dtype):
    prompt, compressor = new_prompt(dtype=dtype), parse(name)
    plan = compressor.plan(prompt)
    view = compressor.draft_view(prompt, plan)
    assert plan.positions.shape[-1] == 36
    for index in range(3):
        for head in range(2):
            kept = plan.positions[index, head].tolist()
            for rows, exact in zip(view.layer(index), (prompt.k, prompt.v), strict=True):
                assert rows.is_contiguous()
                assert torch.equal(rows[head], exact[index, head, kept])


@pytest.mark.parametrize("name", ["exact", "snapkv:1", "exact*exact", "knorm:1*exact"])
def test_keeping_all_is_the_same_tensors(parse, new_prompt, name):
    prompt, compressor = new_prompt(), parse(name)
    plan = compressor.plan(prompt)
    view = compressor.draft_view(prompt, plan)
    assert (plan.positions, plan.kept_share, plan.k_bits) == (None, 1, 32)
    assert isinstance(view, DenseView)
    assert view.k is prompt.k
    assert view.v is prompt.v
    assert view.bits_per_scalar == (32, 32)


@every_dtype
@every_compressor
def test_nbytes_is_what_lies_in_memory(parse, new_prompt, name, dtype):
    prompt, compressor = new_prompt(dtype=dtype), parse(name)
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    assert view.nbytes == resident_bytes(view)
    positions = 0 if view.positions is None else view.positions.nbytes
    held = sum(view.bits_per_scalar) * prompt.k.numel() / 8
    assert held == pytest.approx(view.nbytes - positions)


# dim 64, 1,000 slots of which the last 40 are the question's, bf16. Scales: 32 bits a group of 64
# (int) or 32 (kivi, whose last 40 rows stay: 6.4 bits a scalar of the tail's share), or a channel.
@pytest.mark.parametrize(
    ("name", "k_bits", "v_bits"),
    [
        ("exact", 16, 16),
        ("snapkv:0.25", 4, 4),
        ("int8", 8.5, 8.5),
        ("int4", 4.5, 4.5),
        ("fp8", 8.032, 8.032),
        ("kivi:4", 0.96 * 5 + 0.04 * 16, 0.96 * 5 + 0.04 * 16),
        ("kivi:2", 0.96 * 3 + 0.04 * 16, 0.96 * 3 + 0.04 * 16),
        ("kvquant:4", 4 + 16 * 16 / 1000 + 0.01 * 48, 4.5),
        ("snapkv:0.25*int4", 1.125, 1.125),
        ("streaming:0.5*keydiff:0.5*int8", 2.125, 2.125),
    ],
)
def test_bits_are_as_the_rate_says(parse, new_prompt, name, k_bits, v_bits):
    prompt, compressor = new_prompt(1000, torch.bfloat16, recent=40, dim=64), parse(name)
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    assert view.bits_per_scalar == pytest.approx((k_bits, v_bits))
    assert resident_bytes(view) <= prompt.k.numel() * (k_bits + v_bits) / 8 + 3 * 2 * 8 * 500


@pytest.mark.parametrize("num_slots", [1, 2, 5, 10, 11])
@every_compressor
def test_short_prompts_are_kept_whole_or_as_far_as_they_must(parse, new_prompt, name, num_slots):
    prompt, compressor = new_prompt(num_slots), parse(name)
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    assert view.num_slots >= min(num_slots, 10)
    for rows in view.layer(2):
        assert rows.shape == (2, view.num_slots, 16)
        assert rows.isfinite().all()


@pytest.mark.parametrize("name", DROPPERS)
def test_one_slot_is_kept_where_the_share_is_none(parse, new_prompt, name):
    prompt = new_prompt(12, first=0, recent=0)
    plan = parse(name.partition(":")[0] + ":0.001").plan(prompt)
    assert plan.positions.shape == (3, 2, 1)


def test_a_product_judges_what_is_left_and_quantises_that(parse, new_prompt):
    prompt = new_prompt()
    product = parse("streaming:0.6*keydiff:0.5*int8")
    plan = product.plan(prompt)
    outer = parse("streaming:0.6").plan(prompt).positions
    inner = parse("keydiff:0.5").plan(prompt.narrowed(outer)).positions
    assert torch.equal(plan.positions, outer.gather(-1, inner))
    assert (plan.k_bits, plan.v_bits) == (8, 8)
    dense = parse("exact").draft_view(prompt, plan)
    quantised = parse("int8")
    left = prompt.narrowed(plan.positions)
    alone = quantised.draft_view(left, quantised.plan(left))
    view = product.draft_view(prompt, plan)
    for index in range(3):
        for got, wanted, exact in zip(
            view.layer(index), alone.layer(index), dense.layer(index), strict=True
        ):
            assert torch.equal(got, wanted)
            assert (got - exact).norm() < 0.01 * exact.norm()


def test_noise_is_as_strong_as_it_says(parse, new_prompt):
    prompt, compressor = new_prompt(), parse("noise:0.25")
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    for rows, exact in zip(view.layer(1), (prompt.k[1], prompt.v[1]), strict=True):
        strength = (rows - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        assert strength == pytest.approx(0.25, rel=0.05)
    assert not torch.equal(view.layer(0)[0] - prompt.k[0], view.layer(1)[0] - prompt.k[1])
