"""The compiled kernels of level ``fast`` together; ``rans_reference`` has the same names."""

from .rans_decode import (
    decode_lanes,
    join_low_bits,
    join_symbols,
    place_escapes,
    read_channels,
    read_lanes,
)
from .rans_encode import (
    center,
    choose,
    count,
    encode_lanes,
    find_highest,
    split_low_bits,
    split_symbols,
)

__all__ = [
    "center",
    "choose",
    "count",
    "decode_lanes",
    "encode_lanes",
    "find_highest",
    "join_low_bits",
    "join_symbols",
    "place_escapes",
    "read_channels",
    "read_lanes",
    "split_low_bits",
    "split_symbols",
]
