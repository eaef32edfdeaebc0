"""Every bit flipped, every byte cut: an error of ours each time, and never other bits."""

import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec import decode, decode_into, encode, info

pytestmark = pytest.mark.fault

DAMAGE = (errors.CorruptRecordError, errors.TruncatedRecordError, errors.UnsupportedFormatError)


def bits(kv_dtype):
    """One layer of two heads: K of floats, V of one value, so that `fast` uses all encodings."""
    rng = np.random.default_rng(0)
    dtype = {"bf16": np.uint16, "fp32": np.uint32, "fp8_e4m3": np.uint8}[kv_dtype]
    if kv_dtype == "fp8_e4m3":
        return rng.integers(56, 60, (2, 1, 2, 60, 4), dtype=dtype)
    floats = rng.normal(0, 1, (2, 1, 2, 50, 4)).astype(np.float32)
    floats[0, 0, 0, 7, 1] = 1e9  # an escape
    floats[1] = 1
    return (floats.view(np.uint32) >> (32 - 8 * np.dtype(dtype).itemsize)).astype(dtype)


CASES = [("raw", "bf16"), ("fast", "bf16"), ("fast", "fp32"), ("fast", "fp8_e4m3")]


@pytest.fixture(params=CASES, ids="-".join)
def record(request):
    level, kv_dtype = request.param
    return encode(*bits(kv_dtype), kv_dtype=kv_dtype, level=level)


def test_the_cases_have_chunks_of_all_encodings():
    def encodings(kv_dtype, level):
        record = encode(*bits(kv_dtype), kv_dtype=kv_dtype, level=level)
        return [record[40 + 24 * row + 7] for row in range(2)]

    assert encodings("bf16", "fast") == encodings("fp32", "fast") == [2, 1]
    assert encodings("fp8_e4m3", "fast") == [2, 2]
    assert encodings("bf16", "raw") == [0, 0]


def test_every_bit_flipped(record):
    damaged = bytearray(record)
    for place in range(len(record)):
        for bit in range(8):
            damaged[place] ^= 1 << bit
            with pytest.raises(DAMAGE):
                decode(damaged)
            damaged[place] ^= 1 << bit
    assert decode(damaged)[0].any()


def test_cut_at_every_byte(record):
    for end in range(len(record)):
        for read in (decode, info):
            with pytest.raises(errors.TruncatedRecordError):
                read(record[:end])


def test_junk_after_the_end(record):
    for junk in (b"\0", b"\xff", record, record[:40]):
        with pytest.raises(errors.CorruptRecordError):
            decode(record + junk)


def test_a_stream_of_another_record():
    """K of one prefill beside V of another: the rows are sound, the streams are not theirs."""
    k, v = bits("bf16")
    one = encode(k, v, kv_dtype="bf16", level="raw")
    other = encode(k, v ^ np.uint16(1), kv_dtype="bf16", level="raw")
    with pytest.raises(errors.CorruptRecordError):
        decode(one[: len(one) - v.nbytes] + other[-v.nbytes :])


def test_decode_into_raises_too(record):
    k, v = decode(record)
    damaged = bytearray(record)
    damaged[-1] ^= 1
    with pytest.raises(errors.CorruptRecordError):
        decode_into(damaged, np.empty_like(k), np.empty_like(v))


def test_damage_in_a_record_that_is_decoded_on_many_threads():
    rng = np.random.default_rng(1)
    pair = rng.integers(0, 40, (2, 8, 4, 128, 64), dtype=np.uint16)
    record = encode(*pair, kv_dtype="bf16")
    for place in rng.integers(0, len(record), 60):
        damaged = bytearray(record)
        damaged[place] ^= 0x10
        with pytest.raises(DAMAGE):
            decode(damaged)
    assert np.array_equal(decode(record), pair)
