"""No number that the record has not earned is ever allocated."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xxhash

from kvpacket_store import errors
from kvpacket_store.codec import decode, encode, info
from kvpacket_store.codec.rans_body import decode_body, encode_body
from kvpacket_store.types import KVDtype

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
    end = 40 + 24 * struct.unpack_from("<I", record, 28)[0]
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
@pytest.mark.parametrize("offset", [12, 16, 20, 24, 28], ids=["L", "H", "T", "D", "chunks"])
def test_absurd_header_fields(level, offset):
    for value in ABSURD:
        record = bytearray(small_record(level))
        struct.pack_into("<I", record, offset, value)
        for read in (decode, info):
            assert peak_bytes(read, rehashed(record)) < 100_000


@pytest.mark.parametrize("level", ["raw", "fast"])
def test_absurd_lengths(level):
    for value in [*ABSURD, 1 << 40, (1 << 56) - 1]:
        record = bytearray(small_record(level))
        (kept,) = struct.unpack_from("<Q", record, 40)
        struct.pack_into("<Q", record, 40, kept >> 56 << 56 | value)
        for read in (decode, info):
            assert peak_bytes(read, rehashed(record)) < 100_000


@pytest.mark.parametrize("name", [path.name for path in sorted(VECTORS.glob("invalid_*.kvr"))])
def test_refused_vectors_take_little(name):
    assert peak_bytes(decode, (VECTORS / name).read_bytes()) < 500_000


@pytest.mark.parametrize("values", ["constant", "floats"])
def test_shape_and_table_agree_on_more_than_the_bytes_can_hold(values):
    """Every number in agreement, right checksums, and a few bytes that claim to be 4 GiB."""
    rng = np.random.default_rng(0)
    floats = rng.normal(0, 1, (2, 1, 2, 300, 8)).astype(np.float32).view(np.uint32) >> 16
    pair = np.ones((2, 1, 2, 300, 8)) if values == "constant" else floats
    record = bytearray(encode(*pair.astype(np.uint16), kv_dtype="bf16"))
    assert record[47] == {"constant": 1, "floats": 2}[values]
    struct.pack_into("<I", record, 24, 1 << 22)
    assert peak_bytes(decode, rehashed(record)) < 100_000


def test_a_body_that_claims_much_takes_little():
    """What decoding asks for grows with the items, which the table has earned, and nothing else."""
    rng = np.random.default_rng(0)
    floats = rng.normal(0, 1, (2, 50, 4)).astype(np.float32)
    items = (floats.view(np.uint32) >> 16).astype(np.uint16)
    body = encode_body(items, KVDtype.BF16)
    for at, fmt, value in ((4, "<I", 2**32 - 1), (8 + 8, "<H", 65_535), (1, "B", 255)):
        damaged = bytearray(body)
        struct.pack_into(fmt, damaged, at, value)
        out = np.empty_like(items)
        assert (
            peak_bytes(lambda data, out=out: decode_body(data, out, KVDtype.BF16), damaged) < 50_000
        )


def test_a_record_over_max_bytes_is_refused_before_it_is_allocated():
    record = encode(*np.zeros((2, 1, 1, 1, 1 << 20), np.uint16), kv_dtype="bf16")
    assert len(record) < 2000
    assert peak_bytes(lambda data: decode(data, max_bytes=(4 << 20) - 1), record) < 100_000


def test_a_tiny_frame_that_declares_a_terabyte():
    assert (
        peak_bytes(decode, (VECTORS / "invalid_zstd_declares_terabyte.kvr").read_bytes()) < 500_000
    )
