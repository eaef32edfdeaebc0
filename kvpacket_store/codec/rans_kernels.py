"""The compiled kernels of level ``fast`` together; ``rans_reference`` has the same names."""

from .rans_decode import (
    decode_lanes,
    join_bf16,
    join_low_bits,
    join_symbols,
    place_escapes,
    read_channels,
    read_lanes,
)
from .rans_describe import choose, count, count_bf16, find_highest
from .rans_encode import (
    encode_lanes,
    split_bf16,
    split_low_bits,
    split_symbols,
    take_escapes,
    write_lanes,
)

__all__ = [
    "choose",
    "count",
    "count_bf16",
    "decode_lanes",
    "encode_lanes",
    "find_highest",
    "join_bf16",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
    "split_bf16",
    "split_low_bits",
    "split_symbols",
    "take_escapes",
    "write_lanes",
]
