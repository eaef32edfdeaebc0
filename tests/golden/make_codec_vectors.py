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
from record_surgery import changed, chunk_of, in_chunk, row_of, with_chunk

from kvpacket_store.codec import decode, encode
from kvpacket_store.types import KVDtype

FOLDER = Path(__file__).parent / "codec" / "v1"
CORRUPT, TRUNCATED, UNSUPPORTED = (
    "CorruptRecordError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
)
ZEROS = bytes(2 * 2 * 40 * 16)  # the items of a chunk of the record that is operated on
ENCODING, STORED, DECODED = 7, 8, 16  # offsets in a row; the length is at 0


RAW_TOO = ("bf16_gaussian", "bf16_random_bits", "bf16_no_tokens", "bf16_no_layers", "bf16_one")
RAW_TOO += ("fp16_gaussian", "fp32_gaussian", "fp8_e4m3", "fp8_e5m2", "bf16_two_blocks")


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def fp8_e5m2(values):
    return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)


def outliers(bits):
    """Zeros, infinities, NaNs of any payload and denormals among ordinary values."""
    strange = np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 1, 0x807F], np.uint16)
    bits = bits.copy()
    replaced = bits.reshape(-1)[::50]
    replaced[:] = np.resize(strange, len(replaced))
    return bits


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
        "fp32_of_bf16": ("fp32", bf16(gaussian((1, 2, 40, 16), 6)).astype(np.uint32) << 16),
        "fp8_e4m3": ("fp8_e4m3", rng.integers(0, 90, (1, 2, 40, 16), dtype=np.uint8)),
        "fp8_e5m2": ("fp8_e5m2", rng.integers(0, 256, (1, 1, 16, 16), dtype=np.uint8)),
        "fp8_e5m2_gaussian": ("fp8_e5m2", fp8_e5m2(gaussian((1, 2, 100, 16), 7))),
        "bf16_two_blocks": ("bf16", bf16(gaussian((2, 1, 384, 3), 8))),
        "bf16_one_long_block": ("bf16", bf16(gaussian((1, 1, 383, 5), 9))),
        "bf16_odd_channels": ("bf16", bf16(gaussian((1, 3, 150, 13), 10))),
        "bf16_escapes": ("bf16", outliers(bf16(gaussian((1, 1, 200, 8), 11)))),
        "bf16_far_apart": (
            "bf16",
            bf16(gaussian((1, 1, 130, 8), 12) * 2.0 ** np.arange(-60, 60, 15)),
        ),
    }
    for name, (kv_dtype, k) in arrays.items():
        v = np.roll(k, 1)
        for level in ("raw", "fast"):
            if level == "fast" or name in RAW_TOO:
                yield f"{level}_{name}", encode(k, v, kv_dtype=kv_dtype, level=level), k, v


def invalid_vectors():
    """Yield (name, record, error). Every checksum is right unless it is what is wrong."""
    k = bf16(gaussian((1, 2, 40, 16), 5))
    fast = encode(k, np.roll(k, 1), kv_dtype=KVDtype.BF16, level="fast")
    raw = encode(k[:, :, :3], k[:, :, 1:4], kv_dtype=KVDtype.BF16, level="raw")
    yield from _cut_and_foreign(fast)
    yield from _bad_headers(raw)
    yield from _bad_rows(raw, fast)
    yield from _bad_zstd(fast)
    strange = outliers(bf16(gaussian((1, 2, 200, 16), 14)))
    strange = encode(strange, strange, kv_dtype=KVDtype.BF16, level="fast")
    yield from _bad_rans(strange)


def _cut_and_foreign(fast):
    yield "empty", b"", TRUNCATED
    yield "cut_in_magic", fast[:5], TRUNCATED
    yield "cut_in_header", fast[:39], TRUNCATED
    yield "cut_in_table", fast[:100], TRUNCATED
    yield "cut_in_last_chunk", fast[:-1], TRUNCATED
    yield "junk_after_end", fast + b"\0", CORRUPT
    yield "foreign_magic", b"PK\3\4" + fast[4:], UNSUPPORTED
    yield "newline_converted", fast.replace(b"\r\n", b"\n", 1), UNSUPPORTED
    yield "head_checksum", _with(fast, 40 + 7, "B", fast[47] ^ 1, seal=False), CORRUPT
    yield "stored_bytes", _with(fast, len(fast) - 1, "B", fast[-1] ^ 1), CORRUPT


def _bad_headers(raw):
    yield "version_2", _with(raw, 8, "H", 2), UNSUPPORTED
    yield "level_2", _with(raw, 10, "B", 2), CORRUPT  # a pack section is missing
    yield "level_3", _with(raw, 10, "B", 3), UNSUPPORTED
    yield "level_255", _with(raw, 10, "B", 255), UNSUPPORTED
    yield "dtype_0", _with(raw, 11, "B", 0), UNSUPPORTED
    yield "dtype_6", _with(raw, 11, "B", 6), UNSUPPORTED
    yield "more_layers_than_chunks", _with(raw, 12, "I", 2), CORRUPT
    yield "absurd_tokens", _with(raw, 20, "I", 2**32 - 1), CORRUPT
    yield "absurd_shape", _with(raw, 16, "I", 2**32 - 1, 2**32 - 1, 2**32 - 1), CORRUPT
    yield "absurd_chunks", _with(raw, 28, "I", 2**32 - 1, seal=False), TRUNCATED
    yield "absurd_record_length", _with(raw, 32, "Q", 2**64 - 1), TRUNCATED
    yield "short_record_length", _with(raw, 32, "Q", len(raw) - 1), CORRUPT
    no_tokens = encode(*np.zeros((2, 1, 1, 0, 4), np.uint16), kv_dtype="bf16")
    yield (
        "absurd_empty_shape",
        _with(_with(no_tokens, 16, "I", 2**32 - 1), 24, "I", 2**32 - 1),
        CORRUPT,
    )
    no_layers = encode(*np.zeros((2, 0, 1, 1, 4), np.uint16), kv_dtype="bf16")
    yield "layers_without_chunks", _with(no_layers, 12, "I", 65_536), CORRUPT


def _bad_rows(raw, fast):
    end = len(raw)
    yield "more_tokens_than_chunks", _with(raw, 20, "I", 384), CORRUPT
    yield "chunks_do_not_fill", _with(raw + b"\0", 32, "Q", end + 1), CORRUPT
    yield "encoding_3", _with_row(raw, 1, ENCODING, "B", 3), CORRUPT  # not in level raw
    yield "encoding_4", _with_row(raw, 1, ENCODING, "B", 4), CORRUPT  # likewise
    yield "encoding_5", _with_row(raw, 1, ENCODING, "B", 5), UNSUPPORTED
    yield "encoding_255", _with_row(raw, 1, ENCODING, "B", 255), UNSUPPORTED
    yield "zstd_in_level_raw", _with(_with_zstd(fast, _zstd(ZEROS)), 10, "B", 0), CORRUPT
    yield "rans_in_level_raw", _with(fast, 10, "B", 0), CORRUPT
    yield "raw_shorter_than_items", _with_row(raw, 1, 0, "I", 191), CORRUPT
    yield "absurd_length", _with_row(raw, 0, 0, "I", 2**32 - 1), CORRUPT
    lengths = struct.unpack_from("<I", raw, 40)[0]
    swapped = _with_row(_with_row(raw, 0, 0, "I", lengths - 1), 1, 0, "I", lengths + 1)
    yield "raw_lengths_shifted", swapped, CORRUPT
    yield "raw_checksums_differ", _with_row(raw, 0, DECODED, "Q", 1), CORRUPT
    yield "stored_checksum", _with_row(raw, 0, STORED, "Q", 1, 1), CORRUPT
    yield (
        "rans_no_bytes",
        with_chunk(fast, 0, b"", encoding=2, items=xxhash.xxh3_64_intdigest(ZEROS)),
        CORRUPT,
    )


def _zstd(data, **options):
    return zstandard.ZstdCompressor(level=1, **options).compress(data)


def _bad_zstd(fast):
    good = _zstd(ZEROS)
    decode(_with_zstd(fast, good))  # the surgery itself is sound
    yield "zstd_other_items", _with_zstd(fast, good, items=b"another"), CORRUPT
    yield "zstd_no_frame", _with_zstd(fast, b"\x28\xb5\x2f\xfd" + bytes(40)), CORRUPT
    yield "zstd_not_zstd", _with_zstd(fast, bytes(range(40))), CORRUPT
    yield "zstd_bytes_after_frame", _with_zstd(fast, good + b"\0"), CORRUPT
    yield "zstd_two_frames", _with_zstd(fast, good + good), CORRUPT
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"four"
    yield "zstd_skippable_frame_after", _with_zstd(fast, good + skippable), CORRUPT
    yield "zstd_cut", _with_zstd(fast, good[:-1]), CORRUPT
    undeclared = _zstd(ZEROS, write_content_size=False)
    yield "zstd_undeclared_size", _with_zstd(fast, undeclared), CORRUPT
    terabyte = bytes.fromhex("28b52ffd e0 0000000000010000") + bytes.fromhex("030000")
    yield "zstd_declares_terabyte", _with_zstd(fast, terabyte), CORRUPT
    dictionary = zstandard.ZstdCompressionDict(ZEROS[:64] + bytes(range(200)) * 4)
    with_id = bytearray(zstandard.ZstdCompressor(dict_data=dictionary).compress(ZEROS))
    with_id[4] |= 1  # a dictionary id of one byte follows
    with_id.insert(5, 7)
    yield "zstd_dictionary", _with_zstd(fast, bytes(with_id)), CORRUPT
    yield "zstd_longer_than_items", _with_zstd(fast, ZEROS), CORRUPT
    yield "zstd_beyond_ratio", _beyond_ratio(), CORRUPT


def _beyond_ratio():
    """A chunk of 5 bytes for 5 * 32,768 + 1 items, every other number in agreement."""
    record = encode(*np.zeros((2, 1, 1, 1, 163_841), np.uint8), kv_dtype="fp8_e4m3")
    return _with_zstd(record, b"\x28\xb5\x2f\xfd\xe0")


def _with_body(record, body):
    return with_chunk(record, 0, bytes(body), encoding=2)


def _body_changed(record, at, fmt, *values):
    return in_chunk(record, at, *values, encoding=2, fmt=fmt)


def _bad_rans(fast):
    """Operations on the first chunk, of 32 channels and 2 * 200 * 16 items."""
    body = chunk_of(fast, 0)
    decode(_with_body(fast, body))  # the surgery itself is sound
    yield "rans_seven_bytes", _with_body(fast, body[:7]), CORRUPT
    yield "rans_head_only", _with_body(fast, body[:8]), CORRUPT
    yield "rans_delta_bits_9", _body_changed(fast, 1, "B", 9), CORRUPT
    yield "rans_zero_bits_7", _body_changed(fast, 2, "B", 7), CORRUPT
    yield "rans_zero_bits_1", _body_changed(fast, 2, "B", 1), CORRUPT
    yield "rans_reserved", _body_changed(fast, 3, "B", 1), CORRUPT
    yield "rans_absurd_escapes", _body_changed(fast, 4, "I", 2**32 - 1), CORRUPT
    yield "rans_other_channel", _body_changed(fast, 8, "B", body[8] ^ 1), CORRUPT
    yield "rans_other_low_bits", _body_changed(fast, len(body) - 1, "B", body[-1] ^ 1), CORRUPT
    yield "rans_one_byte_more", _with_body(fast, body + b"\0"), CORRUPT
    yield "rans_two_bytes_more", _with_body(fast, body + b"\0\0"), CORRUPT
    yield "rans_one_byte_fewer", _with_body(fast, body[:-1]), CORRUPT
    yield from _bad_lanes(fast, body)
    yield from _bad_escapes(fast, body)
    yield from _bad_channels()


def _bad_lanes(fast, body):
    states = 8 + 32 * (5 + body[1]) // 8
    lengths, words = states + 128, states + 192
    first, second = struct.unpack_from("<HH", body, lengths)
    yield "rans_state_below_bound", _body_changed(fast, states, "I", 65_535), CORRUPT
    yield "rans_other_state", _body_changed(fast, states, "I", 65_536), CORRUPT
    shifted = _body_changed(fast, lengths, "H", first + 1, second - 1)
    yield "rans_lane_lengths_shifted", shifted, CORRUPT
    yield "rans_lanes_do_not_fill", _body_changed(fast, lengths, "H", first + 1), CORRUPT
    yield "rans_absurd_lane_length", _body_changed(fast, lengths, "H", 65_535), CORRUPT
    yield "rans_other_word", _body_changed(fast, words, "H", 12_345), CORRUPT


def _bad_escapes(fast, body):
    (num_escapes,) = struct.unpack_from("<I", body, 4)
    at = len(body) - 2 * 200 * 16 * 6 // 8 - 2 * num_escapes
    more = body[:4] + struct.pack("<I", num_escapes + 1) + body[8:at] + b"\0\0" + body[at:]
    yield "rans_one_escape_more", _with_body(fast, more), CORRUPT
    fewer = body[:4] + struct.pack("<I", num_escapes - 1) + body[8:at] + body[at + 2 :]
    yield "rans_one_escape_fewer", _with_body(fast, fewer), CORRUPT
    yield "rans_escape_over_nine_bits", _body_changed(fast, at, "H", 512), CORRUPT


def _bad_channels():
    bits = fp8_e5m2(gaussian((1, 1, 200, 7), 13))
    fp8 = encode(bits, bits, kv_dtype="fp8_e5m2")
    body = chunk_of(fp8, 0)
    last = 8 + (7 * (5 + body[1]) + 7) // 8 - 1
    yield "rans_pad_bits", _body_changed(fp8, last, "B", body[last] | 0x80), CORRUPT
    yield "rans_base_over_exponents", _body_changed(fp8, 0, "B", 32), CORRUPT


def _with(record, offset, fmt, *values, seal=True):
    return changed(record, offset, *values, fmt=fmt, seal=seal)


def _with_row(record, index, offset, fmt, *values):
    return _with(record, row_of(record, index) + offset, fmt, *values)


def _with_zstd(record, data, items=ZEROS):
    """Put `data` in place of the first chunk, as a chunk of zstd that holds `items`."""
    return with_chunk(record, 0, data, encoding=1, items=xxhash.xxh3_64_intdigest(items))


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
