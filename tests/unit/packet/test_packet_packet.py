import dataclasses

import numpy as np
import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.packet import Packet
from kvpacket_store.types import KVDtype

KEY = "ab" * 32


def bits(shape=(2, 1, 5, 4), dtype=np.uint16):
    return np.zeros(shape, dtype)


def packet(**changes):
    fields = {
        "key": KEY,
        "token_ids": (7, 8),
        "k": bits(),
        "v": bits(),
        "kv_dtype": KVDtype.BF16,
        "header_tokens": 1,
        "trailer_tokens": 2,
    }
    return Packet(**fields | changes)


def test_positions_are_header_segment_and_trailer():
    made = packet(token_ids=[7, 8])
    assert made.num_positions == 5
    assert made.token_ids == (7, 8)
    assert packet(header_tokens=5, token_ids=(), trailer_tokens=0).num_positions == 5


def test_arrays_are_taken_over_and_read_only():
    k = bits()
    made = packet(k=k)
    for array in (made.k, made.v, k):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.k = bits()


@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_bit_patterns_have_the_width_of_the_dtype(kv_dtype):
    for dtype in (np.uint8, np.uint16, np.uint32):
        k, v = bits(dtype=dtype), bits(dtype=dtype)
        if dtype == kv_dtype.bits_dtype:
            assert packet(k=k, v=v, kv_dtype=str(kv_dtype)).kv_dtype is kv_dtype
        else:
            with pytest.raises(UsageError, match="must be a uint"):
                packet(k=k, v=v, kv_dtype=kv_dtype)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": "ab"}, "64 lower-case hex"),
        ({"key": None}, "64 lower-case hex"),
        ({"kv_dtype": "bfloat16"}, "no KV dtype"),
        ({"k": bits((2, 5, 4))}, r"\[L, H, T, D\]"),
        ({"v": bits().astype(np.float16)}, r"\[L, H, T, D\]"),
        ({"v": [[[[1]]]]}, r"\[L, H, T, D\]"),
        ({"v": bits((2, 2, 5, 4))}, "shapes must be equal"),
        ({"token_ids": (1, 2, 3)}, "5 positions"),
        ({"header_tokens": -1, "trailer_tokens": 4}, "negative"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, reason):
    with pytest.raises(UsageError, match=reason):
        packet(**changes)


def test_repr_holds_no_arrays():
    assert "array" not in repr(packet())
