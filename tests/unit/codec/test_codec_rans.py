"""Compiled kernels and the numpy reference: the same bytes out, the same items back."""

import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec import rans_kernels, rans_reference
from kvpacket_store.codec.rans_body import HEAD, decode_body, encode_body, low_bytes
from kvpacket_store.codec.tables import FREQUENCIES, coder
from kvpacket_store.types import KVDtype

SHAPES = [(2, 9, 32), (1, 40, 7), (3, 17, 12), (1, 130, 1), (1, 300, 4), (5, 3, 33), (2, 33, 24)]


def floats(kv_dtype, shape, seed=0):
    """Channels of their own offset and scale, some outliers, as bit patterns."""
    rng = np.random.default_rng(seed)
    channels = (shape[0], 1, shape[2])
    offset, scale = rng.normal(0, 3, channels), np.exp2(rng.normal(0, 1, channels))
    values = (rng.normal(0, 1, shape) * scale + offset).astype(np.float32)
    values[rng.random(shape) < 0.01] *= 1e-6
    if kv_dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    if kv_dtype == "fp32":
        return bits
    if kv_dtype == "bf16":
        return (bits >> 16).astype(np.uint16)
    halves = values.astype(np.float16).view(np.uint16)  # e5m2 is the upper half of fp16
    return (halves >> 8).astype(np.uint8)


@pytest.mark.parametrize("kv_dtype", KVDtype)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_agree_with_the_reference(kv_dtype, shape):
    chunk = floats(kv_dtype, shape)
    compiled = encode_body(chunk, kv_dtype)
    assert compiled == encode_body(chunk, kv_dtype, rans_reference)
    if compiled is not None:
        for kernels in (None, rans_reference):
            out = np.empty_like(chunk)
            decode_body(compiled, out, kv_dtype, kernels)
            assert np.array_equal(out, chunk)


@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_bodies_are_shorter_and_have_escapes(kv_dtype):
    """The cases above would prove little if all were stored raw, or nothing ever escaped."""
    body = encode_body(floats(kv_dtype, (2, 200, 16)), kv_dtype)
    escapes = HEAD.unpack_from(body)[4]
    assert len(body) < 2 * 200 * 16 * kv_dtype.itemsize_bytes
    assert escapes > 0 or kv_dtype in ("fp8_e4m3", "fp8_e5m2")


@pytest.mark.parametrize("kernels", [None, rans_reference], ids=["compiled", "reference"])
def test_low_bits_that_are_all_zero_are_not_stored(kernels):
    halves = floats("bf16", (1, 64, 16))
    widened = halves.astype(np.uint32) << 16
    body = encode_body(widened, KVDtype.FP32, kernels)
    assert HEAD.unpack_from(body)[2] == 16
    assert len(body) == len(encode_body(halves, KVDtype.BF16, kernels))
    out = np.empty_like(widened)
    decode_body(body, out, KVDtype.FP32, kernels)
    assert np.array_equal(out, widened)


def test_a_few_outliers_in_a_channel_cost_little():
    chunk = floats("bf16", (2, 256, 32))
    body = encode_body(chunk, KVDtype.BF16)
    chunk[:, 0], chunk[:, 100:102] = 0x7FC0, 0xFF80  # NaN, -infinity
    assert len(encode_body(chunk, KVDtype.BF16)) < 1.05 * len(body)


@pytest.mark.parametrize("kv_dtype", [KVDtype.BF16, KVDtype.FP16])
def test_every_16_bit_pattern_among_floats(kv_dtype):
    """Alone all patterns are noise, and stored raw: here they pass through the coder."""
    chunk = floats(kv_dtype, (1, 383, 2048))
    for patterns in np.arange(65536, dtype=np.uint16).reshape(8, -1):
        chunk.reshape(-1)[:: chunk.size // 8192][:8192] = patterns
        body = encode_body(chunk, kv_dtype)
        assert body is not None
        out = np.empty_like(chunk)
        decode_body(body, out, kv_dtype)
        assert np.array_equal(out, chunk)


@pytest.mark.parametrize("kernels", [None, rans_reference], ids=["compiled", "reference"])
def test_no_byte_of_a_body_leads_astray(kernels):
    """Any change gives an error of ours or other items: never a crash, a hang, an index outside."""
    chunk = floats("bf16", (1, 50, 6))
    body = encode_body(chunk, KVDtype.BF16)
    rng = np.random.default_rng(1)
    places = range(len(body)) if kernels is None else rng.integers(0, len(body), 30)
    refused = 0
    for place in places:
        for value in (0, 255, body[place] ^ 1, body[place] ^ 128):
            damaged = bytearray(body)
            damaged[place] = value
            try:
                decode_body(damaged, np.empty_like(chunk), KVDtype.BF16, kernels)
            except errors.CorruptRecordError:
                refused += 1
    assert refused


def test_bodies_of_noise_are_refused():
    rng = np.random.default_rng(2)
    out = np.empty((1, 20, 5), np.uint16)
    for length in range(0, 400, 7):
        noise = rng.integers(0, 256, length, dtype=np.uint8)
        noise[:4] = [100, 3, 0, 0][: len(noise[:4])]
        noise[4:8] = 0
        with pytest.raises(errors.CorruptRecordError, match="rANS body"):
            decode_body(noise.tobytes(), out, KVDtype.BF16)


@pytest.mark.parametrize("kernels", [rans_kernels, rans_reference], ids=["compiled", "reference"])
def test_a_lane_of_over_65535_words_is_refused(kernels):
    words = np.arange(70_000).astype(np.uint16)
    states, body = np.full(1, 1 << 16, np.uint64), np.zeros(140_000, np.uint8)
    longest = (states, np.array([70_000 - 65_535], np.uint64), words)
    assert kernels.write_lanes(longest, body) == 6 + 2 * 65_535
    assert body[4:6].tobytes() == b"\xff\xff"
    assert body[2 * 65_535 + 4 :][:2].tobytes() == words[-1:].tobytes()
    assert kernels.write_lanes(longest, body[: 2 * 65_535]) == -1
    over = (states, np.array([70_000 - 65_536], np.uint64), words)
    assert kernels.write_lanes(over, body) == -1


@pytest.mark.parametrize("width", range(23))
def test_low_bytes_are_those_that_are_written(width):
    items = np.random.default_rng(0).integers(0, 1 << 32, 37, dtype=np.uint32)
    low = np.full(low_bytes(len(items), width), 0xAA, np.uint8)
    rans_reference.split_low_bits(items, 0, width, low)
    out = np.empty_like(items)
    rans_reference.join_low_bits(low, width, out)
    assert np.array_equal(out, items & ((1 << width) - 1))


def test_every_table_is_a_distribution_without_zeros():
    assert FREQUENCIES.shape == (16, 64)
    assert (FREQUENCIES.sum(axis=1) == 4096).all()
    assert FREQUENCIES.min() >= 1
    assert FREQUENCIES.max() < 4096, "a frequency has twelve bits"


def test_slots_and_ranges_are_of_one_family():
    slots, ranges, reciprocals, _ = coder()
    for table, symbol in ((0, 0), (7, 31), (11, 1), (15, 63)):
        entry = int(ranges[64 * table + symbol])
        frequency, rest, first = entry >> 52, entry >> 16 & 0xFFFF, entry & 0xFFFF
        assert frequency == FREQUENCIES[table, symbol] == 4096 - rest
        assert (entry >> 32) == frequency << 20
        assert reciprocals[64 * table + symbol] == -(-(1 << 44) // frequency)
        for distance in range(frequency):
            slot = int(slots[4096 * table + first + distance])
            assert (slot >> 20, slot >> 8 & 4095, slot & 255) == (frequency, distance, symbol)


def test_quotients_by_reciprocal_are_exact():
    """What `_push` computes in 64 bits, for all frequencies, where a quotient changes."""
    for frequency in range(1, 4096):
        reciprocal, bound = -(-(1 << 44) // frequency), frequency << 20
        for quotient in (1, 16, 65535, 65536, (1 << 20) - 1):
            for state in (quotient * frequency, quotient * frequency + frequency - 1):
                assert state < bound
                assert state * reciprocal < 1 << 64
                assert state * reciprocal >> 44 == quotient
