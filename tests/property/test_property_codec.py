"""Every bit comes back; no damage gives other bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kvpacket_store import errors
from kvpacket_store.codec import decode, decode_into, encode, info
from kvpacket_store.types import KVDtype

pytestmark = pytest.mark.property
# no deadlines: the first example of a KV dtype compiles its kernels

LEVELS = st.sampled_from(["raw", "fast"])
SIZES = st.sampled_from([0, 1, 2, 3, 7, 16])
TOKENS = st.sampled_from([0, 1, 2, 16, 60, 150, 384])
SHAPES = st.tuples(st.integers(0, 2), st.integers(0, 3), TOKENS, SIZES)
DAMAGE = (errors.CorruptRecordError, errors.TruncatedRecordError, errors.UnsupportedFormatError)


def floats(rng, shape, kv_dtype):
    """Return bit patterns near 1: sign, exponents about the middle, free low bits."""
    bits = 8 * kv_dtype.itemsize_bytes
    exponents = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}[kv_dtype]
    low = rng.integers(0, 1 << (bits - 1 - exponents), shape)
    high = (1 << (exponents - 1)) - rng.geometric(0.5, shape).clip(max=(1 << exponents - 1) - 1)
    sign = rng.integers(0, 2, shape) << (bits - 1)
    return (sign | high << (bits - 1 - exponents) | low).astype(kv_dtype.bits_dtype)


@st.composite
def pairs(draw):
    """Draw (kv dtype, k, v): free bits, few distinct values, one constant, or floats of a scale."""
    kv_dtype = draw(st.sampled_from(KVDtype))
    shape, dtype = draw(SHAPES), kv_dtype.bits_dtype
    if draw(st.booleans()):
        return kv_dtype, draw(arrays.arrays(dtype, shape)), draw(arrays.arrays(dtype, shape))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        return (kv_dtype, *floats(rng, (2, *shape), kv_dtype))
    limit = draw(st.sampled_from([1, 2, 40, 1 << 8 * dtype.itemsize]))
    k, v = rng.integers(0, limit, (2, *shape), dtype=dtype)
    return kv_dtype, k, v


@given(pairs(), LEVELS)
@settings(deadline=None)
def test_every_bit_comes_back(pair, level):
    kv_dtype, k, v = pair
    record = encode(k, v, kv_dtype=kv_dtype, level=level)
    for decoded, source in zip(decode(record), (k, v), strict=True):
        assert decoded.dtype == source.dtype
        assert decoded.shape == source.shape
        assert np.array_equal(decoded, source)
    found = info(record)
    assert (found.level, found.kv_dtype, found.shape) == (level, kv_dtype, k.shape)
    assert found.raw_bytes == k.nbytes + v.nbytes
    assert found.head_bytes + found.k_bytes + found.v_bytes == len(record)
    assert len(record) <= found.raw_bytes + found.head_bytes


@given(pairs(), LEVELS, st.permutations(range(4)))
@settings(deadline=None)
def test_strides_make_no_difference(pair, level, axes):
    kv_dtype, k, v = pair
    strided = np.ascontiguousarray(k.transpose(axes)).transpose(np.argsort(axes))
    record = encode(strided, v, kv_dtype=kv_dtype, level=level)
    assert record == encode(k, v, kv_dtype=kv_dtype, level=level)
    outs = [np.empty_like(strided), np.empty_like(strided)]
    decode_into(record, *outs)
    assert np.array_equal(outs[0], k)
    assert np.array_equal(outs[1], v)


@given(st.integers(0, 2**32), LEVELS, st.sampled_from(["bf16", "fp16"]))
@settings(max_examples=10, deadline=None)
def test_every_16_bit_pattern_comes_back_from_any_place(seed, level, kv_dtype):
    every = np.random.default_rng(seed).permutation(np.arange(65536, dtype=np.uint16))
    k = every.reshape(2, 2, 128, 128)
    v = k[::-1]
    decoded = decode(encode(k, v, kv_dtype=kv_dtype, level=level))
    assert np.array_equal(decoded[0], k)
    assert np.array_equal(decoded[1], v)


@given(pairs(), LEVELS, st.data())
@settings(deadline=None)
def test_damage_is_found(pair, level, data):
    kv_dtype, k, v = pair
    record = encode(k, v, kv_dtype=kv_dtype, level=level)
    damaged = data.draw(damages(record))
    if damaged == record:
        return
    with pytest.raises(DAMAGE):
        decode(damaged)


@st.composite
def damages(draw, record):
    """Draw what disks and networks do: bits, runs of bytes, cuts, repeats, swapped parts."""
    start = draw(st.integers(0, len(record) - 1))
    stop = draw(st.integers(start, min(len(record), start + 40)))
    part = record[start:stop]
    return draw(
        st.sampled_from(
            [
                record[:start]
                + bytes([record[start] ^ draw(st.integers(1, 255))])
                + record[start + 1 :],
                record[:start] + bytes(len(part)) + record[stop:],
                record[:start] + draw(st.binary(max_size=40)) + record[stop:],
                record[:start] + part[::-1] + record[stop:],
                record[:start] + part + part + record[stop:],
                record[:start] + record[stop:],
                record[start:],
                record + part,
                part + record,
            ]
        )
    )


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_are_refused(data):
    for bytes_ in (data, b"\x89KVR\r\n\x1a\n" + data, b"\x89KVR\r\n\x1a\n\1\0" + data):
        for read in (decode, info):
            with pytest.raises(DAMAGE):
                read(bytes_)
