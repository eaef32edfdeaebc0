"""Quantisers: what comes back is as near as the step says, and codes are really packed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.compress import parse_compressor
from kvpacket_store.compress.affine import quantise_channels, quantise_tokens
from kvpacket_store.compress.bitpack import pack_codes, unpack_codes
from kvpacket_store.compress.float8 import quantise_float8
from kvpacket_store.compress.nonuniform import fit_levels
from kvpacket_store.errors import UsageError


@given(
    shape=st.tuples(st.integers(0, 3), st.integers(1, 17)),
    bits=st.sampled_from([2, 4, 8]),
    seed=st.integers(0, 99),
)
def test_packed_codes_come_back_and_fill_their_bytes(shape, bits, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, shape, generator=generator, dtype=torch.uint8)
    packed = pack_codes(codes, bits)
    assert packed.shape == (shape[0], -(-shape[1] * bits // 8))
    assert torch.equal(unpack_codes(packed, bits, shape[1]), codes)


def half_step(groups, axis, bits):
    """Half the step of each group, and what float16 adds to it."""
    low, high = groups.amin(axis, keepdim=True), groups.amax(axis, keepdim=True)
    return (high - low) / (2**bits - 1) / 2 * 1.01 + 2**-10 * low.abs()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_tokens_come_back_within_half_a_step(new_prompt, bits, size):
    x = new_prompt(90, dim=128).k[0] * size
    got = quantise_tokens(x, bits, 64).expand()
    groups = x.view(2, 90, 2, 64)
    assert ((got.view_as(groups) - groups).abs() <= half_step(groups, -1, bits)).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_channels_come_back_within_half_a_step(new_prompt, bits):
    x = new_prompt(96).k[0]
    got = quantise_channels(x, bits, 32).expand()
    groups = x.view(2, 3, 32, 16)
    assert ((got.view_as(groups) - groups).abs() <= half_step(groups, 2, bits)).all()


@pytest.mark.parametrize("dim", [7, 80, 96, 128])
def test_groups_of_channels_divide_any_head(dim):
    x = torch.randn(2, 20, dim, generator=torch.Generator().manual_seed(0))
    rows = quantise_tokens(x, 4, 64)
    assert rows.grouped[2] * rows.grouped[3] == dim
    assert rows.grouped[3] <= 64
    assert rows.codes.dtype == torch.uint8
    assert rows.codes.numel() == 2 * 20 * rows.grouped[2] * -(-rows.grouped[3] // 2)


@pytest.mark.parametrize("value", [0.0, 5.0, -3e-7, 1e30], ids=str)
def test_a_constant_comes_back_as_far_as_float16_reaches(value):
    got = quantise_tokens(torch.full((1, 4, 8), value), 4, 64).expand()
    assert got.isfinite().all()
    assert got[0, 0, 0] == pytest.approx(min(value, 2 * 65504 * 15), rel=1, abs=1e-7)


def test_float8_comes_back_within_a_sixteenth(new_prompt):
    x = new_prompt(90).k[0]
    got = quantise_float8(x).expand()
    largest = x.abs().amax(dim=1, keepdim=True)
    assert ((got - x).abs() <= x.abs() / 16 * 1.001 + largest * 2**-18).all()


def errors(new_prompt, name, **changes):
    """Relative errors of K and V."""
    prompt, compressor = replace(new_prompt(640, dim=64), **changes), parse_compressor(name)
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    return [
        float((torch.stack(rows) - exact).norm() / exact.norm())
        for rows, exact in zip(
            zip(*(view.layer(index) for index in range(3)), strict=True),
            (prompt.k, prompt.v),
            strict=True,
        )
    ]


@pytest.mark.parametrize(
    ("name", "k_limit", "v_limit"),
    [
        ("int8", 0.01, 0.01),
        ("int4", 0.15, 0.1),
        ("fp8", 0.03, 0.03),
        ("kivi:4", 0.07, 0.1),
        ("kivi:2", 0.35, 0.4),
        ("kvquant:4", 0.08, 0.1),
        ("kvquant:2", 0.25, 0.5),
    ],
)
def test_the_relative_error_is_small(new_prompt, name, k_limit, v_limit):
    k_error, v_error = errors(new_prompt, name)
    assert 0 < k_error < k_limit
    assert 0 < v_error < v_limit


def test_keys_lose_less_a_channel_at_a_time_and_less_again_before_rope(new_prompt):
    assert errors(new_prompt, "kivi:4")[0] < 0.5 * errors(new_prompt, "int4")[0]
    assert errors(new_prompt, "kvquant:2")[0] < 0.8 * errors(new_prompt, "kivi:2")[0]


def test_kivi_leaves_the_question_as_it_is(new_prompt):
    prompt, compressor = new_prompt(100, torch.bfloat16, recent=6), parse_compressor("kivi:2")
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    for rows, exact in zip(view.layer(1), (prompt.k[1], prompt.v[1]), strict=True):
        assert torch.equal(rows[:, 64:], exact[:, 64:])
        assert not torch.equal(rows[:, :64], exact[:, :64])


def test_kvquant_holds_outliers_as_they_are(new_prompt):
    prompt, compressor = new_prompt(200), parse_compressor("kvquant:4")
    rope, slots = prompt.rope, torch.arange(200).expand(2, 200)
    k = rope.remove(prompt.k[0], slots, 0)
    k[:, 50], k[:, 60] = 1e4, -1e4
    rotated = prompt.k.clone()
    rotated[0] = rope.apply(k, slots, 0)
    prompt = replace(prompt, k=rotated)
    view = compressor.draft_view(prompt, compressor.plan(prompt))
    got = rope.remove(view.layer(0)[0], slots, 0)
    torch.testing.assert_close(got[:, [50, 60]], k[:, [50, 60]], rtol=1e-5, atol=0.1)
    rest = [at for at in range(200) if at not in (50, 60)]
    assert float((got - k)[:, rest].norm() / k[:, rest].norm()) < 0.08


def test_kvquant_rotates_kept_keys_to_where_they_stood(new_prompt):
    prompt, compressor = new_prompt(400), parse_compressor("random:0.5*kvquant:4")
    plan = compressor.plan(prompt)
    k = compressor.draft_view(prompt, plan).layer(1)[0]
    exact = parse_compressor("exact").draft_view(prompt, plan).layer(1)[0]
    assert float((k - exact).norm() / exact.norm()) < 0.1


def test_kvquant_says_what_it_lacks(new_prompt):
    prompt, compressor = replace(new_prompt(), rope=None), parse_compressor("kvquant")
    with pytest.raises(UsageError, match="before RoPE"):
        compressor.draft_view(prompt, compressor.plan(prompt))


def levels_reference(values, count, rounds):
    """Lloyd's iteration in plain Python."""
    values = sorted(values)
    levels = [values[(2 * at + 1) * len(values) // (2 * count)] for at in range(count)]
    for _ in range(rounds):
        held = [[] for _ in levels]
        for value in values:
            # of two levels as near, the lower
            nearest = min(range(count), key=lambda at: (abs(levels[at] - value), at))
            held[nearest].append(value)
        levels = [sum(h) / len(h) if h else old for h, old in zip(held, levels, strict=True)]
    return levels


def test_levels_are_those_of_plain_k_means(new_prompt):
    x = new_prompt(50).k[0, 0].T  # [D, T]
    got = fit_levels(x, 4, rounds=3)
    for row, values in zip(got.tolist(), x.double().tolist(), strict=True):
        assert row == pytest.approx(levels_reference(values, 4, 3), abs=1e-5)
        assert row == sorted(row)
