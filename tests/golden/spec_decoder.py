"""A second decoder, written from docs/format.md alone: slow, readable, independent of the package.

`decode` returns (kv dtype, shape, K bytes, V bytes), or raises `RefusedError` naming the error.
Level linear is `spec_linear`, which builds on this.
"""

import math
from typing import NamedTuple

import zstandard
from spec_rans import unrans
from spec_reading import (
    CORRUPT,
    ITEM_BYTES,
    TRUNCATED,
    UNSUPPORTED,
    RefusedError,
    number,
    refuse_if,
    xxh3,
)

MAGIC = bytes.fromhex("894B56520D0A1A0A")
LEVELS = {0: "raw", 1: "fast", 2: "linear"}
DTYPES = {1: "bf16", 2: "fp16", 3: "fp32", 4: "fp8_e4m3", 5: "fp8_e5m2"}
RAW, ZSTD, RANS, LINEAR, NOTHING = 0, 1, 2, 3, 4
WHOLE, BASE, ENHANCEMENT = 0, 1, 2
ALLOWED = {
    ("raw", None): {RAW},
    ("fast", None): {RAW, ZSTD, RANS},
    ("linear", WHOLE): {RAW, ZSTD, RANS, LINEAR},
    ("linear", BASE): {RAW, LINEAR},
    ("linear", ENHANCEMENT): {LINEAR, NOTHING},
}
CHECKSUM_OF_NOTHING = 0x2D06800538D394C2


class PackSection(NamedTuple):
    pack_digest: bytes
    part: int
    kv_digest: bytes
    settings: tuple


class Head(NamedTuple):
    level: str
    dtype: str
    shape: list
    section: PackSection | None
    rows: list


class Row(NamedTuple):
    offset: int
    length: int
    encoding: int
    stored_checksum: int
    decoded_checksum: int


def decode(record, max_bytes=8 << 30):
    head = read_head(record)
    check_limit(head, max_bytes)
    blocks = block_sizes(head.shape[2])
    chunks = [
        read_chunk(record, row, head.dtype, head.shape, blocks[index % len(blocks)])
        for index, row in enumerate(head.rows)
    ]
    return join_chunks(chunks, head)


def check_limit(head, max_bytes):
    refuse_if(2 * math.prod(head.shape) * ITEM_BYTES[head.dtype] > max_bytes, CORRUPT)


def join_chunks(chunks, head):
    """Put all chunks, in the order of the table, together."""
    sides, blocks = [b"", b""], block_sizes(head.shape[2])
    for row in range(2 * head.shape[0]):
        mine = chunks[row * len(blocks) : (row + 1) * len(blocks)]
        sides[row % 2] += join_blocks(mine, blocks, head.shape, ITEM_BYTES[head.dtype])
    return head.dtype, tuple(head.shape), *sides


def block_sizes(num_tokens):
    """§3."""
    num_blocks = max((num_tokens + 128) // 256, 1)
    return [256] * (num_blocks - 1) + [num_tokens - 256 * (num_blocks - 1)]


def join_blocks(chunks, blocks, shape, item_bytes):
    """Every chunk is [H, tokens, D]; the whole is [H, T, D]."""
    row_bytes = shape[3] * item_bytes
    joined = b""
    for head in range(shape[1]):
        for chunk, tokens in zip(chunks, blocks, strict=True):
            joined += chunk[head * tokens * row_bytes : (head + 1) * tokens * row_bytes]
    return joined


def read_head(record):
    """§2 and §3, in the order of §9."""
    refuse_if(record[:8] != MAGIC[: len(record)], UNSUPPORTED)
    refuse_if(len(record) < 40, TRUNCATED)
    refuse_if(number(record, 8, 16) != 1, UNSUPPORTED)
    num_chunks = number(record, 28, 32)
    table_start = 40 + (72 + 2 * number(record, 12, 32) if record[10] == 2 else 0)
    table_end = table_start + 24 * num_chunks
    refuse_if(len(record) < table_end + 8, TRUNCATED)
    refuse_if(xxh3(record[:table_end]) != number(record, table_end, 64), CORRUPT)
    level, dtype = LEVELS.get(record[10]), DTYPES.get(record[11])
    refuse_if(level is None or dtype is None, UNSUPPORTED)
    shape = [number(record, offset, 32) for offset in (12, 16, 20, 24)]
    nonzero = math.prod(max(size, 1) for size in shape)
    refuse_if(2 * nonzero * ITEM_BYTES[dtype] >= 2**63, CORRUPT)
    refuse_if(shape[0] > 65535, CORRUPT)
    refuse_if(num_chunks != 2 * shape[0] * max((shape[2] + 128) // 256, 1), CORRUPT)
    record_length = number(record, 32, 64)
    refuse_if(len(record) < record_length, TRUNCATED)
    refuse_if(len(record) > record_length, CORRUPT)
    section = read_section(record[40:table_start]) if level == "linear" else None
    allowed = ALLOWED[level, section and section.part]
    rows = read_table(record, table_start, table_end, allowed, dtype, shape)
    return Head(level, dtype, shape, section, rows)


def read_section(section):
    """§2.1."""
    part, reserved, settings = section[32], section[33:40], tuple(section[72:])
    refuse_if(part > ENHANCEMENT or any(reserved), UNSUPPORTED)
    possible = {0} if part == WHOLE else {1, 2, 3}
    refuse_if(not possible.issuperset(settings), UNSUPPORTED)
    return PackSection(section[:32], part, section[40:72], settings)


def read_table(record, table_start, table_end, allowed, dtype, shape):
    rows, offset = [], table_end + 8
    for at in range(table_start, table_end, 24):
        row = Row(
            offset,
            number(record, at, 56),
            record[at + 7],
            number(record, at + 8, 64),
            number(record, at + 16, 64),
        )
        refuse_if(row.encoding > NOTHING, UNSUPPORTED)
        offset += row.length
        rows.append(row)
    refuse_if(offset != len(record), CORRUPT)
    blocks = block_sizes(shape[2])
    for index, row in enumerate(rows):
        tokens = blocks[index % len(blocks)]
        check_row(row, allowed, shape[1] * tokens * shape[3] * ITEM_BYTES[dtype])
    return rows


def check_row(row, allowed, decoded_length):
    """§3 and §4."""
    refuse_if(row.encoding not in allowed, CORRUPT)
    if row.encoding == NOTHING:
        refuse_if(row.length != 0, CORRUPT)
        refuse_if({*row[3:]} != {CHECKSUM_OF_NOTHING}, CORRUPT)
    elif row.encoding == RAW:
        refuse_if(row.length != decoded_length, CORRUPT)
        refuse_if(row.stored_checksum != row.decoded_checksum, CORRUPT)
    else:
        refuse_if(row.length >= decoded_length, CORRUPT)
        refuse_if(decoded_length > 32768 * row.length, CORRUPT)


def read_chunk(record, row, dtype, shape, num_tokens):
    """§4."""
    items = stored = stored_bytes(record, row)
    if row.encoding == ZSTD:
        items = unzstd(stored, shape[1] * num_tokens * shape[3] * ITEM_BYTES[dtype])
    elif row.encoding == RANS:
        items = unrans(stored, dtype, shape[1], num_tokens, shape[3])
    refuse_if(xxh3(items) != row.decoded_checksum, CORRUPT)
    return items


def stored_bytes(record, row):
    stored = record[row.offset : row.offset + row.length]
    refuse_if(xxh3(stored) != row.stored_checksum, CORRUPT)
    return stored


def unzstd(stored, decoded_length):
    try:
        refuse_if(zstandard.frame_content_size(stored) != decoded_length, CORRUPT)
        items = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
        refuse_if(len(items) != decoded_length, CORRUPT)
        return items
    except zstandard.ZstdError:
        raise RefusedError(CORRUPT) from None
