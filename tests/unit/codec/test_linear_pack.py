"""Codec packs as files: what is written is read, what cannot be is refused before it is used."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import zstandard

from kvpacket_store import errors
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.types import KVDtype

PACK = make_pack(PackShape(2, 1, 18, 1))
HEAD_BYTES = 14
ARRAYS = (
    "steps", "centers", "shifts", "bases", "multipliers", "downs", "drops", "classes", "coarse",
    "fine", "matrices",
)  # fmt: skip


def sealed(contents, num_bytes=None):
    length = len(contents) if num_bytes is None else num_bytes
    return PACK.to_bytes()[:10] + struct.pack("<I", length) + zstandard.compress(contents)


def with_head(head):
    """Return a file with another head's text before the arrays."""
    contents = zstandard.decompress(PACK.to_bytes()[HEAD_BYTES:])
    (length,) = struct.unpack_from("<I", contents)
    text = head(json.loads(contents[4 : 4 + length]))
    if not isinstance(text, bytes):
        text = json.dumps(text, sort_keys=True, separators=(",", ":")).encode()
    return sealed(struct.pack("<I", len(text)) + text + contents[4 + length :])


def changed(name, at, value):
    array = getattr(PACK, name).copy()
    array[at] = value
    return replace(PACK, **{name: array}).to_bytes()


@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_what_is_written_is_read(kv_dtype):
    pack = make_pack(PackShape(3, 2, 5, 2), kv_dtype, seed=3)
    pack = replace(pack, weights="ab" * 32, about={"corpus": "é", "bits": 0.1})
    again = CodecPack.from_bytes(pack.to_bytes())
    assert (again.digest, again.shape, again.kv_dtype) == (pack.digest, pack.shape, kv_dtype)
    assert (again.weights, again.about) == (pack.weights, pack.about)
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(pack, name)), name
        assert getattr(again, name).dtype == getattr(pack, name).dtype


@pytest.mark.parametrize("name", ARRAYS)
def test_every_number_counts_for_the_digest(name):
    array = getattr(PACK, name).copy()
    array.reshape(-1)[-1] ^= 1
    assert replace(PACK, **{name: array}).digest != PACK.digest


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("steps", (0, 0, 0), 0),
        ("steps", (0, 0, 0), 255),
        ("centers", (0, 0, 0), 4097),
        ("centers", (0, 0, 0), -4097),
        ("shifts", (0, 0, 0), 13),
        ("bases", (0, 0, 0), 2**30),
        ("bases", (0, 0, 0), -(2**31)),
        ("downs", (1, 1, 17), 7),
        ("downs", (1, 1, 17), 41),
        ("drops", (0, 1, 1, 17), 1),
        ("drops", (3, 1, 1, 17), 4),
        ("classes", (0, 0, 0, 0), 2),
        ("coarse", (0, 0, 0), 0),
        ("coarse", (0, 0, 63), 4095),
        ("fine", (0, 0), [2048, 2047, 1, 0, 0, 0, 0, 0]),
        ("fine", (0, 10), [2048, 2047, 0, 0, 1, 0, 0, 0]),
        ("fine", (1, 37), [4096, 0, 0, 0, 0, 0, 0, 0]),
        ("fine", (1, 37, 0), 9),
        ("fine", (1, 3), [0, 4096, 0, 0, 0, 0, 0, 0]),
        ("fine", (1, 21), [1, 0, 4094, 1, 0, 0, 0, 0]),
        ("matrices", 0, -128),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(name, at, value):
    with pytest.raises(errors.CorruptRecordError, match="cannot be"):
        CodecPack.from_bytes(changed(name, at, value))


@pytest.mark.parametrize(("head_dim", "is_possible"), [(128, True), (144, False)])
def test_predictions_beyond_32_bits_are_refused(head_dim, is_possible):
    pack = make_pack(PackShape(1, 1, head_dim, 0))
    steep = replace(
        pack, multipliers=np.full_like(pack.multipliers, 65535), downs=np.full_like(pack.downs, 8)
    )
    if is_possible:
        assert CodecPack.from_bytes(steep.to_bytes()).digest == steep.digest
        return
    with pytest.raises(errors.CorruptRecordError, match="cannot be"):
        CodecPack.from_bytes(steep.to_bytes())


@pytest.mark.parametrize(
    "head",
    [
        lambda head: b"",
        lambda head: b"null",
        lambda head: b"[]",
        lambda head: b"\xff",
        lambda head: b"[" * 200_000,
        lambda head: {},
        lambda head: head | {"more": 1},
        lambda head: head | {"shape": [2, 1, 18, 1]},
        lambda head: head | {"shape": head["shape"] | {"layers": "2"}},
        lambda head: head | {"shape": head["shape"] | {"layers": 1e400}},
        lambda head: head | {"shape": head["shape"] | {"layers": 3}},
        lambda head: head | {"shape": head["shape"] | {"layers": 0}},
        lambda head: head | {"shape": head["shape"] | {"back": -1}},
        lambda head: head | {"shape": head["shape"] | {"heads": 65536, "head_dim": 65536}},
        lambda head: head | {"shape": head["shape"] | {"layers": 65536, "back": 65536}},
        lambda head: head | {"classes": 0},
        lambda head: head | {"classes": 65},
        lambda head: head | {"classes": "2"},
        lambda head: head | {"kv_dtype": "int4"},
        lambda head: head | {"kv_dtype": []},
        lambda head: head | {"weights": "AB" * 32},
        lambda head: head | {"weights": None},
        lambda head: head | {"about": None},
        lambda head: head | {"about": [["a", 1]]},
        lambda head: json.dumps(head).encode(),
    ],
    ids=map(str, range(25)),
)
def test_other_heads_are_refused(head):
    with pytest.raises(errors.CorruptRecordError, match="codec pack"):
        CodecPack.from_bytes(with_head(head))


def test_a_head_that_is_put_back_is_read():
    """What the test above does is otherwise sound."""
    assert CodecPack.from_bytes(with_head(lambda head: head)).digest == PACK.digest


def test_foreign_and_newer_files_are_refused_by_name():
    data = PACK.to_bytes()
    for foreign in (b"", data[:13], b"PK" + data[2:], data.replace(b"\r\n", b"\n", 1)):
        with pytest.raises(errors.UnsupportedFormatError):
            CodecPack.from_bytes(foreign)
    with pytest.raises(errors.UnsupportedFormatError, match="version 2"):
        CodecPack.from_bytes(data[:8] + b"\2\0" + data[10:])


@pytest.mark.parametrize("num_bytes", [0, 1, 2**28 + 1, 2**32 - 1])
def test_lengths_that_are_not_the_contents_are_refused(num_bytes):
    contents = zstandard.decompress(PACK.to_bytes()[HEAD_BYTES:])
    with pytest.raises(errors.CorruptRecordError):
        CodecPack.from_bytes(sealed(contents, num_bytes))


def test_a_frame_of_few_bytes_does_not_earn_megabytes():
    frame = bytes.fromhex("28b52ffd a0 00000010 030000")  # declares 2**28
    data = PACK.to_bytes()[:10] + struct.pack("<I", 1 << 28) + frame
    with pytest.raises(errors.CorruptRecordError, match="declares"):
        CodecPack.from_bytes(data)


def test_bytes_after_the_end_are_refused():
    contents = zstandard.decompress(PACK.to_bytes()[HEAD_BYTES:])
    for damaged in (sealed(contents) + b"\0", sealed(contents + b"\0"), sealed(contents[:-1])):
        with pytest.raises(errors.CorruptRecordError):
            CodecPack.from_bytes(damaged)
