"""What the codec does not take, it refuses by name."""

import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec import DEFAULT_MAX_BYTES, decode, decode_into, encode, info
from kvpacket_store.types import KVDtype

SHAPE = (2, 1, 3, 4)
BITS = np.arange(24, dtype=np.uint16).reshape(SHAPE)


def test_a_level_to_come_says_which_to_use_now():
    with pytest.raises(errors.LevelUnavailableError, match=r"'spec'.*'fast' now"):
        encode(BITS, BITS, kv_dtype="bf16", level="spec", pack=object())


def test_linear_wants_a_codec_pack():
    with pytest.raises(errors.LevelUnavailableError, match=r"kvps codec train.*'fast'"):
        encode(BITS, BITS, kv_dtype="bf16", level="linear")
    with pytest.raises(errors.UsageError, match="pass a CodecPack"):
        encode(BITS, BITS, kv_dtype="bf16", level="linear", pack=object())


@pytest.mark.parametrize("level", ["Fast", "", None, "zstd"])
def test_unknown_levels(level):
    with pytest.raises(errors.UsageError, match="pass one of raw, fast, linear"):
        encode(BITS, BITS, kv_dtype="bf16", level=level)


def test_a_pack_where_none_is_taken():
    with pytest.raises(errors.UsageError, match="takes no codec pack"):
        encode(BITS, BITS, kv_dtype="bf16", pack=object())


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "", None, np.uint16])
def test_unknown_kv_dtypes(kv_dtype):
    with pytest.raises(errors.UsageError, match="pass one of bf16"):
        encode(BITS, BITS, kv_dtype=kv_dtype)


@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_only_bit_patterns_of_the_dtype(kv_dtype):
    for dtype in ("u1", "<u2", "<u4", "<u8", ">u2", "i2", "f2", "f4", "O"):
        array = np.zeros(SHAPE, dtype)
        if array.dtype == kv_dtype.bits_dtype:
            assert encode(array, array, kv_dtype=kv_dtype)
        else:
            with pytest.raises(errors.UsageError, match=r"k is .* bit patterns"):
                encode(array, array, kv_dtype=kv_dtype)


@pytest.mark.parametrize("wrong", [None, BITS.tolist(), BITS.tobytes()], ids=type)
def test_only_arrays(wrong):
    with pytest.raises(errors.UsageError, match="v is a"):
        encode(BITS, wrong, kv_dtype="bf16")


@pytest.mark.parametrize("shape", [(), (24,), (2, 3, 4), (1, 2, 1, 3, 4)], ids=len)
def test_only_rank_four(shape):
    with pytest.raises(errors.UsageError, match=f"{len(shape)} dimensions"):
        encode(np.zeros(shape, np.uint16), BITS, kv_dtype="bf16")


def test_k_and_v_of_different_shapes():
    with pytest.raises(errors.UsageError, match="must be equal"):
        encode(BITS, BITS.reshape(2, 3, 1, 4), kv_dtype="bf16")


def test_more_than_a_decoder_would_read():
    huge = np.broadcast_to(np.uint16(0), (1, 1, DEFAULT_MAX_BYTES // 4 + 1, 1))
    with pytest.raises(errors.UsageError, match="shorter segments"):
        encode(huge, huge, kv_dtype="bf16")
    many = np.zeros((65_536, 0, 1, 1), np.uint16)
    with pytest.raises(errors.UsageError, match="65535 layers"):
        encode(many, many, kv_dtype="bf16")
    wide = np.broadcast_to(np.uint16(0), (1, 0, 1 << 32, 1))
    with pytest.raises(errors.UsageError, match="size of"):
        encode(wide, wide, kv_dtype="bf16")


@pytest.mark.parametrize("read", [decode, info], ids=["decode", "info"])
@pytest.mark.parametrize("wrong", [None, "text", 5], ids=type)
def test_a_record_is_bytes(read, wrong):
    with pytest.raises(errors.UsageError, match="contiguous bytes"):
        read(wrong)


def test_a_record_with_gaps_in_memory():
    record = encode(BITS, BITS, kv_dtype="bf16")
    with pytest.raises(errors.UsageError, match="contiguous bytes"):
        decode(memoryview(record + record)[::2])


@pytest.mark.parametrize(
    "out",
    [
        None,
        np.zeros((2, 1, 4, 3), np.uint16),
        np.zeros(SHAPE, np.uint8),
        np.zeros(SHAPE, np.float16),
        np.zeros((2, 3, 4), np.uint16),
        np.broadcast_to(np.uint16(0), SHAPE),
    ],
    ids=["none", "shape", "uint8", "float16", "rank", "read-only"],
)
def test_outputs_that_do_not_fit(out):
    record = encode(BITS, BITS, kv_dtype="bf16")
    good = np.empty(SHAPE, np.uint16)
    with pytest.raises(errors.UsageError, match="k_out must be a writable"):
        decode_into(record, out, good)
    with pytest.raises(errors.UsageError, match="v_out must be a writable"):
        decode_into(record, good, out)
