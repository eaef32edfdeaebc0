"""No number that the record has not earned is ever allocated."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xxhash

from kvpacket_store import errors
from kvpacket_store.codec import decode, encode, info

pytestmark = pytest.mark.fault

DAMAGE = (errors.CorruptRecordError, errors.TruncatedRecordError, errors.UnsupportedFormatError)
VECTORS = Path(__file__).parents[1] / "golden" / "codec" / "v1"
ABSURD = [1 << 16, 1 << 20, 1 << 28, (1 << 32) - 1]


def peak_bytes(read, record):
    """Return the most memory that refusing `record` took."""
    tracemalloc.start()
    try:
        with pytest.raises(DAMAGE):
            read(record)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rehashed(record):
    end = 40 + 48 * struct.unpack_from("<I", record, 28)[0]
    if end + 8 <= len(record):
        struct.pack_into("<Q", record, end, xxhash.xxh3_64_intdigest(bytes(record[:end])))
    return bytes(record)


def small_record(level):
    return encode(*np.ones((2, 1, 2, 300, 8), np.uint16), kv_dtype="bf16", level=level)


def test_the_measure_sees_what_decoding_allocates():
    record = encode(*np.zeros((2, 1, 1, 1 << 20, 1), np.uint16), kv_dtype="bf16")
    tracemalloc.start()
    decode(record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak > 4 << 20


@pytest.mark.parametrize("level", ["raw", "fast"])
@pytest.mark.parametrize("offset", [12, 16, 20, 24, 28], ids=["L", "H", "T", "D", "streams"])
def test_absurd_header_fields(level, offset):
    for value in ABSURD:
        record = bytearray(small_record(level))
        struct.pack_into("<I", record, offset, value)
        for read in (decode, info):
            assert peak_bytes(read, rehashed(record)) < 100_000


@pytest.mark.parametrize("level", ["raw", "fast"])
@pytest.mark.parametrize("offset", [0, 8, 16], ids=["offset", "length", "decoded_length"])
def test_absurd_table_fields(level, offset):
    for value in [*ABSURD, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]:
        record = bytearray(small_record(level))
        struct.pack_into("<Q", record, 40 + offset, value)
        for read in (decode, info):
            assert peak_bytes(read, rehashed(record)) < 100_000


@pytest.mark.parametrize("name", [path.name for path in sorted(VECTORS.glob("invalid_*.kvr"))])
def test_refused_vectors_take_little(name):
    assert peak_bytes(decode, (VECTORS / name).read_bytes()) < 500_000


def test_shape_and_table_agree_on_more_than_the_bytes_can_hold():
    """Every number in agreement, right checksums, and a few bytes that claim to be 4 GiB."""
    record = bytearray(small_record("fast"))
    tokens = 1 << 27
    struct.pack_into("<I", record, 20, tokens)
    for row in range(4):
        struct.pack_into("<Q", record, 40 + 48 * row + 16, 2 * tokens * 8)
    assert peak_bytes(decode, rehashed(record)) < 100_000


def test_a_record_over_max_bytes_is_refused_before_it_is_allocated():
    record = encode(*np.zeros((2, 1, 1, 1 << 20, 1), np.uint16), kv_dtype="bf16")
    assert len(record) < 2000
    assert peak_bytes(lambda data: decode(data, max_bytes=(4 << 20) - 1), record) < 100_000


def test_a_tiny_frame_that_declares_a_terabyte():
    assert (
        peak_bytes(decode, (VECTORS / "invalid_zstd_declares_terabyte.kvr").read_bytes()) < 500_000
    )
