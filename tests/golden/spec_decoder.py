"""A second decoder, written from docs/format.md alone: slow, readable, independent of the package.

`decode` returns (kv dtype, shape, K bytes, V bytes), or raises `RefusedError` naming the error.
"""

import math
from typing import NamedTuple

import xxhash
import zstandard

MAGIC = bytes.fromhex("894B56520D0A1A0A")
LEVELS = {0: "raw", 1: "fast"}
DTYPES = {1: "bf16", 2: "fp16", 3: "fp32", 4: "fp8_e4m3", 5: "fp8_e5m2"}
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1}
CORRUPT, TRUNCATED, UNSUPPORTED = (
    "CorruptRecordError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
)


class RefusedError(Exception):
    """The record is refused; the message is the name of the error."""


class Row(NamedTuple):
    offset: int
    length: int
    decoded_length: int
    stored_checksum: int
    decoded_checksum: int
    encoding: int
    reserved: int


def refuse_if(condition, error):
    if condition:
        raise RefusedError(error)


def number(data, offset, bits):
    return int.from_bytes(data[offset : offset + bits // 8], "little")


def decode(record, max_bytes=8 << 30):
    level, dtype, shape, rows = read_head(record)
    item_bytes = ITEM_BYTES[dtype]
    refuse_if(2 * math.prod(shape) * item_bytes > max_bytes, CORRUPT)
    num_planes = 1 if level == "raw" else item_bytes
    k, v = b"", b""
    planes = [read_stream(record, row) for row in rows]
    for layer in range(shape[0]):
        first = 2 * layer * num_planes
        k += join_planes(level, item_bytes, planes[first : first + num_planes])
        v += join_planes(level, item_bytes, planes[first + num_planes : first + 2 * num_planes])
    return dtype, tuple(shape), k, v


def read_head(record):
    """§2 and §3, in the order of §6."""
    refuse_if(record[:8] != MAGIC[: len(record)], UNSUPPORTED)
    refuse_if(len(record) < 40, TRUNCATED)
    refuse_if(number(record, 8, 16) != 1, UNSUPPORTED)
    num_streams = number(record, 28, 32)
    table_end = 40 + 48 * num_streams
    refuse_if(len(record) < table_end + 8, TRUNCATED)
    refuse_if(xxh3(record[:table_end]) != number(record, table_end, 64), CORRUPT)
    level, dtype = LEVELS.get(record[10]), DTYPES.get(record[11])
    refuse_if(level is None or dtype is None, UNSUPPORTED)
    shape = [number(record, offset, 32) for offset in (12, 16, 20, 24)]
    item_bytes = ITEM_BYTES[dtype]
    refuse_if(2 * math.prod(max(size, 1) for size in shape) * item_bytes >= 2**63, CORRUPT)
    refuse_if(shape[0] > 65535, CORRUPT)
    plane_widths = [item_bytes] if level == "raw" else [1] * item_bytes
    refuse_if(num_streams != 2 * shape[0] * len(plane_widths), CORRUPT)
    record_length = number(record, 32, 64)
    refuse_if(len(record) < record_length, TRUNCATED)
    refuse_if(len(record) > record_length, CORRUPT)
    return level, dtype, shape, read_table(record, shape, plane_widths)


def read_table(record, shape, plane_widths):
    rows = []
    expected_offset = 48 + 48 * 2 * shape[0] * len(plane_widths)
    for index in range(2 * shape[0] * len(plane_widths)):
        at = 40 + 48 * index
        row = Row(
            *(number(record, at + offset, 64) for offset in (0, 8, 16, 24, 32)),
            number(record, at + 40, 8),
            number(record, at + 41, 56),
        )
        width = plane_widths[index % len(plane_widths)]
        check_row(row, expected_offset, math.prod(shape[1:]) * width)
        expected_offset += row.length
        rows.append(row)
    refuse_if(expected_offset != len(record), CORRUPT)
    return rows


def check_row(row, expected_offset, plane_bytes):
    refuse_if(row.encoding not in (0, 1), UNSUPPORTED)
    refuse_if(row.offset != expected_offset or row.reserved != 0, CORRUPT)
    refuse_if(row.decoded_length != plane_bytes, CORRUPT)
    if row.encoding == 0:
        refuse_if(row.length != row.decoded_length, CORRUPT)
        refuse_if(row.stored_checksum != row.decoded_checksum, CORRUPT)
    else:
        refuse_if(row.length >= row.decoded_length, CORRUPT)
        refuse_if(row.decoded_length > 32768 * row.length, CORRUPT)


def read_stream(record, row):
    """§4."""
    stored = record[row.offset : row.offset + row.length]
    refuse_if(xxh3(stored) != row.stored_checksum, CORRUPT)
    plane = stored if row.encoding == 0 else unzstd(stored, row.decoded_length)
    refuse_if(len(plane) != row.decoded_length or xxh3(plane) != row.decoded_checksum, CORRUPT)
    return plane


def unzstd(stored, decoded_length):
    try:
        refuse_if(zstandard.frame_content_size(stored) != decoded_length, CORRUPT)
        return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError:
        raise RefusedError(CORRUPT) from None


def join_planes(level, item_bytes, planes):
    """§5."""
    if level == "raw" or item_bytes == 1:
        return planes[0]
    chunk = bytearray()
    below = 8 * item_bytes - 9  # bits under the nine that were rotated
    for byte_by_plane in zip(*planes, strict=True):
        rotated = int.from_bytes(bytes(byte_by_plane), "big")
        nine, rest = rotated >> below, rotated & ((1 << below) - 1)
        nine = (nine >> 1) | ((nine & 1) << 8)
        chunk += ((nine << below) | rest).to_bytes(item_bytes, "little")
    return bytes(chunk)


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)
