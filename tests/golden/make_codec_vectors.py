"""Write tests/golden/codec/v1: records that must be read, and records that must be refused.

A vector that exists is never written again: what was once written must be readable for ever. Add a
vector below, then run ``python tests/golden/make_codec_vectors.py`` with the project's Python.
"""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import xxhash
import zstandard

from kvpacket_store.codec import decode, encode
from kvpacket_store.types import KVDtype

FOLDER = Path(__file__).parent / "codec" / "v1"
CORRUPT, TRUNCATED, UNSUPPORTED = (
    "CorruptRecordError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
)
HEADER_BYTES, ROW_BYTES = 40, 48
ZEROS = bytes(2 * 40 * 16)  # a plane of the record that is operated on
ROW = {"offset": 0, "length": 8, "decoded_length": 16, "stored": 24, "decoded": 32}


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def gaussian(shape, seed):
    """Channels of their own offset and scale, as K and V have them."""
    rng = np.random.default_rng(seed)
    channels = (shape[0], shape[1], 1, shape[3])
    offset, scale = rng.normal(0, 2, channels), np.exp(rng.normal(0, 1, channels))
    return rng.normal(0, 1, shape) * scale + offset


def valid_vectors():
    """Yield (name, record, k, v)."""
    rng = np.random.default_rng(1)
    every = np.arange(65536, dtype=np.uint16).reshape(2, 2, 256, 64)
    arrays = {
        "bf16_gaussian": ("bf16", bf16(gaussian((2, 2, 40, 16), 2))),
        "bf16_every_pattern": ("bf16", every),
        "bf16_constant": ("bf16", np.full((1, 2, 300, 8), 0x3F80, np.uint16)),
        "bf16_random_bits": ("bf16", rng.integers(0, 65536, (1, 1, 33, 7), dtype=np.uint16)),
        "bf16_no_tokens": ("bf16", np.zeros((2, 3, 0, 64), np.uint16)),
        "bf16_no_layers": ("bf16", np.zeros((0, 3, 5, 64), np.uint16)),
        "bf16_one": ("bf16", np.full((1, 1, 1, 1), 0xFFC1, np.uint16)),
        "fp16_gaussian": ("fp16", gaussian((1, 2, 40, 16), 3).astype(np.float16).view(np.uint16)),
        "fp32_gaussian": ("fp32", gaussian((1, 2, 20, 16), 4).astype(np.float32).view(np.uint32)),
        "fp8_e4m3": ("fp8_e4m3", rng.integers(0, 90, (1, 2, 40, 16), dtype=np.uint8)),
        "fp8_e5m2": ("fp8_e5m2", rng.integers(0, 256, (1, 1, 16, 16), dtype=np.uint8)),
    }
    for name, (kv_dtype, k) in arrays.items():
        v = np.roll(k, 1)
        for level in ("raw", "fast"):
            if not (level == "raw" and name == "bf16_every_pattern"):  # 256 KiB of what fast covers
                yield f"{level}_{name}", encode(k, v, kv_dtype=kv_dtype, level=level), k, v


def invalid_vectors():
    """Yield (name, record, error). Every head checksum is right unless it is what is wrong."""
    k = bf16(gaussian((1, 2, 40, 16), 5))
    fast = encode(k, np.roll(k, 1), kv_dtype=KVDtype.BF16, level="fast")
    raw = encode(k[:, :, :3], k[:, :, 1:4], kv_dtype=KVDtype.BF16, level="raw")
    yield from _cut_and_foreign(fast)
    yield from _bad_headers(raw)
    yield from _bad_rows(raw)
    yield from _bad_zstd(fast)


def _cut_and_foreign(fast):
    yield "empty", b"", TRUNCATED
    yield "cut_in_magic", fast[:5], TRUNCATED
    yield "cut_in_header", fast[:39], TRUNCATED
    yield "cut_in_table", fast[:100], TRUNCATED
    yield "cut_in_last_stream", fast[:-1], TRUNCATED
    yield "junk_after_end", fast + b"\0", CORRUPT
    yield "foreign_magic", b"PK\3\4" + fast[4:], UNSUPPORTED
    yield "newline_converted", fast.replace(b"\r\n", b"\n", 1), UNSUPPORTED
    yield "head_checksum", _with(fast, 40 + 7, "B", fast[47] ^ 1, rehash=False), CORRUPT
    yield "stored_bytes", _with(fast, len(fast) - 1, "B", fast[-1] ^ 1), CORRUPT


def _bad_headers(raw):
    yield "version_2", _with(raw, 8, "<H", 2), UNSUPPORTED
    yield "level_2", _with(raw, 10, "B", 2), UNSUPPORTED
    yield "level_255", _with(raw, 10, "B", 255), UNSUPPORTED
    yield "dtype_0", _with(raw, 11, "B", 0), UNSUPPORTED
    yield "dtype_6", _with(raw, 11, "B", 6), UNSUPPORTED
    yield "more_layers_than_streams", _with(raw, 12, "<I", 2), CORRUPT
    yield "absurd_tokens", _with(raw, 20, "<I", 2**32 - 1), CORRUPT
    yield "absurd_shape", _with(raw, 16, "<III", 2**32 - 1, 2**32 - 1, 2**32 - 1), CORRUPT
    yield "absurd_streams", _with(raw, 28, "<I", 2**32 - 1, rehash=False), TRUNCATED
    yield "absurd_record_length", _with(raw, 32, "<Q", 2**64 - 1), TRUNCATED
    yield "short_record_length", _with(raw, 32, "<Q", len(raw) - 1), CORRUPT
    no_tokens = encode(*np.zeros((2, 1, 1, 0, 4), np.uint16), kv_dtype="bf16")
    yield "absurd_empty_shape", _with(no_tokens, 16, "<I", 2**32 - 1, at2=(24, 2**32 - 1)), CORRUPT
    no_layers = encode(*np.zeros((2, 0, 1, 1, 4), np.uint16), kv_dtype="bf16")
    yield "layers_without_streams", _with(no_layers, 12, "<I", 65_536), CORRUPT


def _bad_rows(raw):
    end = len(raw)
    yield "streams_do_not_fill", _with(raw + b"\0", 32, "<Q", end + 1), CORRUPT
    yield "reserved_in_row", _with_row(raw, 1, 47, "B", 1), CORRUPT
    yield "encoding_2", _with_row(raw, 1, 40, "B", 2), UNSUPPORTED
    yield "hole", _with_row(raw, 1, ROW["offset"], "<Q", end - 191), CORRUPT
    yield "overlap", _with_row(raw, 1, ROW["offset"], "<Q", end - 193), CORRUPT
    yield "offset_wraps", _with_row(raw, 1, ROW["offset"], "<Q", 2**64 - 1), CORRUPT
    yield "raw_shorter_than_plane", _with_row(raw, 1, ROW["length"], "<Q", 191), CORRUPT
    yield "absurd_length", _with_row(raw, 0, ROW["length"], "<Q", 2**63), CORRUPT
    yield "decoded_length", _with_row(raw, 0, ROW["decoded_length"], "<Q", 2**40), CORRUPT
    yield "raw_checksums_differ", _with_row(raw, 0, ROW["decoded"], "<Q", 1), CORRUPT
    yield "stored_checksum", _with_row(raw, 0, ROW["stored"], "<QQ", 1, 1), CORRUPT


def _bad_zstd(fast):
    good = zstandard.ZstdCompressor(level=1).compress(ZEROS)
    decode(_replace_stream(fast, good))  # the surgery itself is sound
    yield "zstd_other_plane", _replace_stream(fast, good, plane=b"another"), CORRUPT
    yield "zstd_no_frame", _replace_stream(fast, b"\x28\xb5\x2f\xfd" + bytes(40)), CORRUPT
    yield "zstd_not_zstd", _replace_stream(fast, bytes(range(40))), CORRUPT
    yield "zstd_bytes_after_frame", _replace_stream(fast, good + b"\0"), CORRUPT
    yield "zstd_two_frames", _replace_stream(fast, good + good), CORRUPT
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"four"
    yield "zstd_skippable_frame_after", _replace_stream(fast, good + skippable), CORRUPT
    yield "zstd_cut", _replace_stream(fast, good[:-1]), CORRUPT
    undeclared = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(ZEROS)
    yield "zstd_undeclared_size", _replace_stream(fast, undeclared), CORRUPT
    terabyte = bytes.fromhex("28b52ffd e0 0000000000010000") + bytes.fromhex("030000")
    yield "zstd_declares_terabyte", _replace_stream(fast, terabyte), CORRUPT
    dictionary = zstandard.ZstdCompressionDict(ZEROS[:64] + bytes(range(200)) * 4)
    with_id = bytearray(zstandard.ZstdCompressor(dict_data=dictionary).compress(ZEROS))
    with_id[4] |= 1  # a dictionary id of one byte follows
    with_id.insert(5, 7)
    yield "zstd_dictionary", _replace_stream(fast, bytes(with_id)), CORRUPT
    yield "zstd_longer_than_plane", _replace_stream(fast, ZEROS), CORRUPT
    yield "zstd_beyond_ratio", _beyond_ratio(), CORRUPT


def _beyond_ratio():
    """A stream of 5 bytes for a plane of 5 * 32,768 + 1, every other number in agreement."""
    record = encode(*np.zeros((2, 1, 1, 163_841, 1), np.uint8), kv_dtype="fp8_e4m3")
    return _replace_stream(record, b"\x28\xb5\x2f\xfd\xe0")


def _with(record, offset, fmt, *values, rehash=True, at2=None):
    changed = bytearray(record)
    struct.pack_into(fmt, changed, offset, *values)
    if at2 is not None:
        struct.pack_into(fmt, changed, *at2)
    return _rehashed(changed) if rehash else bytes(changed)


def _with_row(record, index, offset, fmt, *values):
    return _with(record, HEADER_BYTES + ROW_BYTES * index + offset, fmt, *values)


def _rehashed(record):
    end = HEADER_BYTES + ROW_BYTES * struct.unpack_from("<I", record, 28)[0]
    struct.pack_into("<Q", record, end, xxhash.xxh3_64_intdigest(bytes(record[:end])))
    return bytes(record)


def _replace_stream(record, data, plane=ZEROS):
    """Put `data` in place of the first stream, as zstd, and make offsets and checksums right."""
    num_streams = struct.unpack_from("<I", record, 28)[0]
    changed = bytearray(record)
    offset, length = struct.unpack_from("<QQ", changed, HEADER_BYTES)
    changed[offset : offset + length] = data
    struct.pack_into("<Q", changed, HEADER_BYTES + ROW["length"], len(data))
    struct.pack_into("<Q", changed, HEADER_BYTES + ROW["stored"], xxhash.xxh3_64_intdigest(data))
    struct.pack_into("<Q", changed, HEADER_BYTES + ROW["decoded"], xxhash.xxh3_64_intdigest(plane))
    struct.pack_into("<B", changed, HEADER_BYTES + 40, 1)
    for index in range(1, num_streams):
        at = HEADER_BYTES + ROW_BYTES * index
        (later,) = struct.unpack_from("<Q", changed, at)
        struct.pack_into("<Q", changed, at, later + len(data) - length)
    struct.pack_into("<Q", changed, 32, len(changed))
    return _rehashed(changed)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else []
    known = {entry["file"] for entry in manifest}
    for name, record, k, v in valid_vectors():
        planes = hashlib.sha256(k.tobytes() + v.tobytes()).hexdigest()
        _add(
            manifest, known, f"valid_{name}.kvr", record, {"kind": "valid", "planes_sha256": planes}
        )
    for name, record, error in invalid_vectors():
        _add(manifest, known, f"invalid_{name}.kvr", record, {"kind": "invalid", "error": error})
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def _add(manifest, known, file, record, facts):
    if file not in known:
        (FOLDER / file).write_bytes(record)
        digest = hashlib.sha256(record).hexdigest()
        manifest.append(
            {"file": file, "sha256": digest, "planes_sha256": None, "error": None} | facts
        )


if __name__ == "__main__":
    main()
