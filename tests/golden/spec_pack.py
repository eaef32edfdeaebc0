"""Codec packs, written from docs/format.md §8 alone: slow, readable, independent of the package."""

import hashlib
import json
from typing import NamedTuple

import spec_decoder
from spec_reading import CORRUPT, UNSUPPORTED, RefusedError, Sections, number, refuse_if

EXPONENT_BITS = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}
CHANNEL_ARRAYS = (
    ("step", 1, False), ("center", 2, True), ("shift", 1, False), ("base", 4, True),
    ("multiplier", 2, False), ("down", 1, False),
)  # fmt: skip


class Pack(NamedTuple):
    digest: bytes
    dtype: str
    layers: int
    heads: int
    head_dim: int
    back: int
    channels: dict  # (layer, side) → [Channel]
    coarse: list  # by class, table
    fine: list
    weights: dict  # (layer, side, group) → 16 rows


class Channel(NamedTuple):
    step: int
    center: int
    shift: int
    base: int
    multiplier: int
    down: int
    drops: tuple  # by setting
    classes: tuple


def read_pack(data):
    """§8."""
    refuse_if(len(data) < 14 or data[:8] != bytes.fromhex("894B56430D0A1A0A"), UNSUPPORTED)
    refuse_if(number(data, 8, 16) != 1, UNSUPPORTED)
    length = number(data, 10, 32)
    refuse_if(length > min(2**28, 32768 * (len(data) - 14)), CORRUPT)
    contents = spec_decoder.unzstd(data[14:], length)
    refuse_if(len(contents) < 4 or len(contents) < 4 + number(contents, 0, 32), CORRUPT)
    take = Sections(contents, 4)
    dtype, num_classes, shape = read_head(take(number(contents, 0, 32)))
    pack = read_arrays(take, dtype, num_classes, shape)
    refuse_if(take.at != len(contents), CORRUPT)
    check_arrays(pack, num_classes)
    return pack._replace(digest=hashlib.sha256(contents).digest())


def read_head(text):
    try:
        head = json.loads(text)
        again = json.dumps(head, sort_keys=True, separators=(",", ":"))
        refuse_if(again.encode("ascii") != text, CORRUPT)
        refuse_if({*head} != {"about", "classes", "kv_dtype", "shape", "weights"}, CORRUPT)
        shape = [head["shape"][name] for name in ("layers", "heads", "head_dim", "back")]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise RefusedError(CORRUPT) from None
    refuse_if(len(head["shape"]) != 4 or not isinstance(head["about"], dict), CORRUPT)
    weights = head["weights"]
    refuse_if(not isinstance(weights, str) or len(weights) not in (0, 64), CORRUPT)
    refuse_if(set(weights) - set("0123456789abcdef"), CORRUPT)
    refuse_if(any(type(size) is not int for size in [*shape, head["classes"]]), CORRUPT)
    refuse_if(not 1 <= head["classes"] <= 64, CORRUPT)
    refuse_if(not isinstance(head["kv_dtype"], str), CORRUPT)
    refuse_if(head["kv_dtype"] not in spec_decoder.ITEM_BYTES, CORRUPT)
    check_shape(*shape)
    return head["kv_dtype"], head["classes"], shape


def check_shape(layers, heads, head_dim, back):
    refuse_if(min(layers, heads, head_dim) < 1 or back < 0, CORRUPT)
    refuse_if(max(layers, heads, head_dim, back) > 65536, CORRUPT)
    num_channels = heads * head_dim
    refuse_if(layers * num_channels**2 > 240_000_000, CORRUPT)
    num_groups = -(-num_channels // 16)
    num_weights = sum(
        16 * (num_groups * rows_before(layer, side, 16 * num_groups, back))
        + 16 * 16 * (num_groups * (num_groups - 1) // 2)
        for layer in range(layers)
        for side in range(2)
    )
    refuse_if(num_weights > 240_000_000, CORRUPT)


def rows_before(layer, side, padded, back):
    """R of group 0, §7.3."""
    return (2 * min(layer, back) + side) * padded


def read_arrays(take, dtype, num_classes, shape):
    layers, heads, head_dim, back = shape
    num_channels = heads * head_dim
    count = layers * 2 * num_channels
    columns = [read_numbers(take, count, size, signed) for _, size, signed in CHANNEL_ARRAYS]
    drops, classes = ([read_numbers(take, count, 1) for _ in range(4)] for _ in range(2))
    every = [
        Channel(*values, by_setting, chosen)
        for *values, by_setting, chosen in zip(
            *columns, zip(*drops, strict=True), zip(*classes, strict=True), strict=True
        )
    ]
    channels = {
        divmod(row, 2): every[row * num_channels : (row + 1) * num_channels]
        for row in range(2 * layers)
    }
    coarse, fine = (
        [[read_numbers(take, size, 2) for _ in range(tables)] for _ in range(num_classes)]
        for tables, size in ((15, 64), (38, 8))
    )
    num_groups = -(-num_channels // 16)
    weights = {
        (layer, side, group): [
            read_numbers(
                take, rows_before(layer, side, 16 * num_groups, back) + 16 * group, 1, True
            )
            for _ in range(16)
        ]
        for layer in range(layers)
        for side in range(2)
        for group in range(num_groups)
    }
    return Pack(b"", dtype, *shape, channels, coarse, fine, weights)


def read_numbers(take, count, size, signed=False):
    data = take(count * size)
    return [
        int.from_bytes(data[at : at + size], "little", signed=signed)
        for at in range(0, len(data), size)
    ]


def check_arrays(pack, num_classes):
    last_step = 2 ** EXPONENT_BITS[pack.dtype] - 2
    num_groups = -(-pack.heads * pack.head_dim // 16)
    for (layer, side), channels in pack.channels.items():
        rows = rows_before(layer, side, 16 * num_groups, pack.back) + 16 * (num_groups - 1)
        for channel in channels:
            refuse_if(not 1 <= channel.step <= last_step, CORRUPT)
            refuse_if(abs(channel.center) > 4096 or channel.shift > 12, CORRUPT)
            refuse_if(abs(channel.base) >= 2**30 or not 8 <= channel.down <= 40, CORRUPT)
            refuse_if(channel.drops[0] != 0 or max(channel.drops) > 3, CORRUPT)
            refuse_if(max(channel.classes) >= num_classes, CORRUPT)
            largest = 127 * 127 * rows * channel.multiplier >> channel.down
            refuse_if(largest + abs(channel.base) // 256 >= 2**30, CORRUPT)
    for table in (table for tables in pack.coarse for table in tables):
        refuse_if(min(table) < 1 or sum(table) != 4096, CORRUPT)
    for index, table in (pair for tables in pack.fine for pair in enumerate(tables)):
        drop = 1 + (index >= 10) + (index >= 22)
        refuse_if(min(table[: 1 << drop]) < 1 or any(table[1 << drop :]), CORRUPT)
        refuse_if(sum(table) != 4096, CORRUPT)
    for row in (row for rows in pack.weights.values() for row in rows):
        refuse_if(-128 in row, CORRUPT)
