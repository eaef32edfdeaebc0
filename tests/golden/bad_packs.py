"""Codec packs that must be refused, for tests/golden/linear/v1."""

import struct
from dataclasses import replace

import zstandard

CORRUPT, UNSUPPORTED = "CorruptRecordError", "UnsupportedFormatError"


def bad_packs(pack):
    """Yield (reader, name, files, error) of packs that must be refused."""
    data = pack.to_bytes()
    contents = zstandard.decompress(data[14:])
    yield "pack", "pack_empty", [b""], UNSUPPORTED
    yield "pack", "pack_foreign", [b"PK\3\4" + data[4:]], UNSUPPORTED
    yield "pack", "pack_version_2", [data[:8] + b"\2\0" + data[10:]], UNSUPPORTED
    yield "pack", "pack_cut", [data[:-1]], CORRUPT
    yield "pack", "pack_junk_after_end", [data + b"\0"], CORRUPT
    absurd = data[:10] + struct.pack("<I", 2**28) + bytes.fromhex("28b52ffda000000010030000")
    yield "pack", "pack_declares_megabytes", [absurd], CORRUPT
    for name, other in {
        "pack_contents_longer": contents + b"\0",
        "pack_contents_shorter": contents[:-1],
        "pack_head_with_space": contents.replace(b'":', b'": ', 1),
        "pack_head_absurd_length": struct.pack("<I", 2**32 - 1) + contents[4:],
        "pack_head_nested": struct.pack("<I", 50_000) + b"[" * 50_000,
        "pack_more_layers": contents.replace(b'"layers":1', b'"layers":2'),
        "pack_absurd_shape": contents.replace(b'"heads":1', b'"heads":9'),
        "pack_other_dtype": contents.replace(b"fp8_e4m3", b"fp8_e4m9"),
    }.items():
        yield "pack", name, [resealed(data, other)], CORRUPT
    yield from bad_numbers(pack)


def bad_numbers(pack):
    for name, at, value in (
        ("steps", (0, 0, 0), 15),
        ("centers", (0, 0, 0), 4097),
        ("shifts", (0, 1, 4), 13),
        ("bases", (0, 0, 0), -(2**30)),
        ("downs", (0, 0, 0), 7),
        ("drops", (0, 0, 0, 0), 1),
        ("drops", (1, 0, 0, 0), 4),
        ("classes", (2, 0, 0, 0), 2),
        ("coarse", (0, 0, 0), 0),
        ("fine", (0, 0), [2048, 2047, 1, 0, 0, 0, 0, 0]),
        ("matrices", (0,), -128),
    ):
        array = getattr(pack, name).copy()
        array[at] = value
        bad = replace(pack, **{name: array})
        yield "pack", f"pack_{name}_in_{at[0]}", [bad.to_bytes()], CORRUPT


def resealed(data, contents):
    compressed = zstandard.ZstdCompressor().compress(contents)
    return data[:10] + struct.pack("<I", len(contents)) + compressed
