import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec import decode, decode_into, encode, encoder, info
from kvpacket_store.types import KVDtype


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def pair():
    """Channels of their own offset and scale, as K and V have them."""
    rng = np.random.default_rng(0)
    offset, scale = rng.normal(0, 2, (2, 4, 3, 1, 64)), np.exp(rng.normal(0, 1, (2, 4, 3, 1, 64)))
    k, v = bf16(rng.normal(0, 1, (2, 4, 3, 200, 64)) * scale + offset)
    return k, v


@pytest.mark.parametrize("level", ["raw", "fast"])
def test_decode_gives_new_writable_contiguous_arrays(pair, level):
    record = bytearray(encode(*pair, kv_dtype="bf16", level=level))
    decoded = decode(record)
    record[:] = bytes(len(record))  # nothing may still point into the record
    for array, source in zip(decoded, pair, strict=True):
        assert np.array_equal(array, source)
        assert array.dtype == source.dtype
        assert array.flags.writeable
        assert array.flags.c_contiguous


@pytest.mark.parametrize("level", ["raw", "fast"])
def test_any_buffer_is_a_record(pair, level):
    record = encode(*pair, kv_dtype=KVDtype.BF16, level=level)
    padded = b"xyz" + record
    for buffer in (bytearray(record), memoryview(padded)[3:], np.frombuffer(record, np.uint8).data):
        assert np.array_equal(decode(buffer)[1], pair[1])


@pytest.mark.parametrize("level", ["raw", "fast"])
def test_decode_into_slots_of_a_larger_cache(pair, level):
    record = encode(*pair, kv_dtype="bf16", level=level)
    cache = np.full((2, 4, 3, 300, 64), 0xABCD, np.uint16)
    decode_into(record, cache[0, :, :, 50:250], cache[1, :, :, 50:250])
    assert np.array_equal(cache[:, :, :, 50:250], np.stack(pair))
    assert (cache[:, :, :, :50] == 0xABCD).all()
    assert (cache[:, :, :, 250:] == 0xABCD).all()


@pytest.mark.parametrize("level", ["raw", "fast"])
def test_strides_of_the_input_do_not_matter(pair, level):
    k, v = pair
    expected = encode(k, v, kv_dtype="bf16", level=level)
    wide = np.repeat(v, 2, axis=2)[:, :, ::2]
    read_only = k.copy()
    read_only.flags.writeable = False
    assert encode(np.asfortranarray(k), wide, kv_dtype="bf16", level=level) == expected
    assert encode(read_only, v, kv_dtype="bf16", level=level) == expected


def test_fast_compresses_and_raw_does_not(pair):
    raw = info(encode(*pair, kv_dtype="bf16", level="raw"))
    fast = info(encode(*pair, kv_dtype="bf16", level="fast"))
    assert raw.record_bytes == raw.raw_bytes + raw.head_bytes
    assert 8 * fast.record_bytes / (2 * pair[0].size) < 10.9


@pytest.mark.parametrize("level", ["raw", "fast"])
@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_noise_grows_by_the_head_at_most(level, kv_dtype):
    rng = np.random.default_rng(1)
    limit = 1 << 8 * kv_dtype.itemsize_bytes
    k, v = rng.integers(0, limit, (2, 2, 2, 30, 16), dtype=kv_dtype.bits_dtype)
    found = info(encode(k, v, kv_dtype=kv_dtype, level=level))
    assert found.head_bytes == 48 + 24 * 2 * 2
    assert found.record_bytes <= found.raw_bytes + found.head_bytes


def test_info_says_what_is_stored(pair):
    k, v = pair
    constant = np.zeros_like(v)
    found = info(encode(k, constant, kv_dtype="bf16"))
    assert (found.level, found.kv_dtype, found.shape) == ("fast", KVDtype.BF16, k.shape)
    assert found.raw_bytes == 2 * k.nbytes
    assert len(found.k_bytes_by_layer) == len(found.v_bytes_by_layer) == 4
    assert found.head_bytes + found.k_bytes + found.v_bytes == found.record_bytes
    assert found.v_bytes < 400 < min(found.k_bytes_by_layer)


def test_info_does_not_decode(pair):
    record = bytearray(encode(*pair, kv_dtype="bf16"))
    intact = info(record)
    record[-1] ^= 1
    assert info(record) == intact
    with pytest.raises(errors.CorruptRecordError):
        decode(record)


def test_encoder_compares_before_it_returns(pair, monkeypatch):
    written = encoder._assemble

    def faulty(*args):
        record = bytearray(written(*args))
        record[-1] ^= 1
        return bytes(record)

    monkeypatch.setattr(encoder, "_assemble", faulty)
    with pytest.raises(errors.CorruptRecordError, match="does not come back"):
        encode(*pair, kv_dtype="bf16")


def test_encoder_compares_with_what_it_was_given(pair, monkeypatch):
    """A level that writes a sound record of other bits is found out as well."""
    store = encoder.require_level("fast")

    def off_by_one(chunk, kv_dtype):
        return store(chunk ^ np.uint16(1), kv_dtype)

    monkeypatch.setattr(encoder, "require_level", lambda name: off_by_one)
    with pytest.raises(errors.CorruptRecordError, match="decodes to other bits"):
        encode(*pair, kv_dtype="bf16")


def test_max_bytes_is_of_k_and_v_together(pair):
    record = encode(*pair, kv_dtype="bf16")
    raw_bytes = 2 * pair[0].nbytes
    assert np.array_equal(decode(record, max_bytes=raw_bytes)[0], pair[0])
    with pytest.raises(errors.CorruptRecordError, match=f"max_bytes={raw_bytes - 1}"):
        decode(record, max_bytes=raw_bytes - 1)
