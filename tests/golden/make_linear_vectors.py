"""Write tests/golden/linear/v1: packs and records of level linear, to be read or to be refused.

A file that exists is never written again: what was once written must be readable for ever. Add a
vector below, then run ``python tests/golden/make_linear_vectors.py`` with the project's Python.
"""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import xxhash
import zstandard
from bad_packs import bad_packs
from record_surgery import changed, chunk_of, in_chunk, row_of, with_chunk

from kvpacket_store.codec import decode_base, encode, encode_layers
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack
from kvpacket_store.codec.rans_body import encode_body
from kvpacket_store.types import KVDtype

FOLDER = Path(__file__).parent / "linear" / "v1"
CORRUPT, TRUNCATED, UNSUPPORTED, UNAVAILABLE, USAGE = (
    "CorruptRecordError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
    "LevelUnavailableError",
    "UsageError",
)
PACKS = {
    "bf16": make_pack(PackShape(2, 2, 9, 1), "bf16", 1),
    "bf16_back_2": make_pack(PackShape(4, 1, 3, 2), "bf16", 2),
    "bf16_alone": make_pack(PackShape(1, 1, 16, 0), "bf16", 3),
    "fp16": make_pack(PackShape(2, 1, 7, 1), "fp16", 4),
    "fp32": make_pack(PackShape(1, 1, 20, 1), "fp32", 5),
    "fp8_e4m3": make_pack(PackShape(1, 1, 5, 1), "fp8_e4m3", 10),
    "fp8_e5m2": make_pack(PackShape(2, 2, 4, 1), "fp8_e5m2", 7),
}
STRANGE = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 1, 0x807F, 0x0080, 0x7F7F]
STEPS = ("sigma/8", "sigma/4", "sigma/2")
SECTION = 40  # where the pack section begins


def pair(pack, num_tokens, seed, strange=0.01):
    shape = (pack.shape.layers, pack.shape.heads, num_tokens, pack.shape.head_dim)
    return tuple(make_items(shape, pack.kv_dtype, seed + i, strange) for i in (0, 1))


def sources():
    """Yield (name, pack's name, k, v)."""
    for name, pack in PACKS.items():
        num_tokens = {"bf16_alone": 383, "fp8_e4m3": 300, "fp16": 300}.get(name, 80)
        yield name, name, *pair(pack, num_tokens, 10)
    bf16 = PACKS["bf16"]
    for num_tokens in (0, 1, 31):
        yield f"bf16_{num_tokens}_tokens", "bf16", *pair(bf16, num_tokens, 20)
    yield "bf16_two_blocks", "bf16_back_2", *pair(PACKS["bf16_back_2"], 400, 30)
    k, v = pair(bf16, 90, 40)
    flat = v.reshape(-1)
    flat[::40] = np.resize(STRANGE, len(flat[::40]))
    v[0], k[1] = 0x3F80, pair(bf16, 90, 50, strange=1)[0][1]  # a constant; noise: a raw chunk
    yield "bf16_strange", "bf16", k, v


def put(files, name, data):
    files.setdefault(name, data)
    return name


def valid_vectors(files):
    """Yield entries; the bytes that they need are put into ``files``."""
    for name, pack in PACKS.items():
        file = put(files, f"pack_{name}.kvc", pack.to_bytes())
        yield {"read": "pack", "files": [file], "sha256": pack.digest}
    for name, pack_name, k, v in sources():
        pack, kv_dtype = PACKS[pack_name], PACKS[pack_name].kv_dtype
        record = encode(k, v, kv_dtype=kv_dtype, level="linear", pack=pack)
        yield entry("decode", [put(files, f"whole_{name}.kvr", record)], k, v)
        mixed = [(STEPS[i % 3], STEPS[(i + 1) % 3]) for i in range(len(k))]
        for step in (*STEPS, mixed) if name == "bf16" else (mixed,):
            label = f"{name}_{step.replace('/', '_')}" if isinstance(step, str) else name
            layers = encode_layers(k, v, kv_dtype=kv_dtype, pack=pack, base_step=step)
            both = [put(files, f"base_{label}.kvr", layers.base)]
            yield entry("decode_base", both, *decode_base(layers.base, packs=[pack]))
            both = [*both, put(files, f"enhancement_{label}.kvr", layers.enhancement)]
            yield entry("decode_layers", both, k, v)
    yield from other_encodings(files)


def other_encodings(files):
    """A whole record may have chunks of zstd and rans: their bins are context of what follows."""
    pack = PACKS["bf16"]
    k, v = pair(pack, 80, 60)
    k[0] = 0x3F80
    record = encode(k, v, kv_dtype="bf16", level="linear", pack=pack)
    record = with_chunk(record, 0, zstandard.compress(k[0].tobytes()), encoding=1)
    record = with_chunk(record, 2, encode_body(k[1], KVDtype.BF16), encoding=2)
    yield entry("decode", [put(files, "whole_other_encodings.kvr", record)], k, v)


def entry(read, names, k, v):
    return {
        "read": read,
        "files": names,
        "sha256": hashlib.sha256(k.tobytes() + v.tobytes()).hexdigest(),
    }


def invalid_vectors(files):
    """Yield entries. Every checksum is right unless it is what is wrong."""
    operated = (
        *bad_sections(),
        *bad_rows(),
        *bad_twins(),
        *bad_bodies(),
        *bad_packs(PACKS["fp8_e4m3"]),
    )
    for read, name, parts, error in operated:
        suffix = "kvc" if read == "pack" else "kvr"
        labels = [""] if len(parts) == 1 else ["_base", "_enhancement"]
        names = [
            put(files, f"invalid_{name}{label}.{suffix}", part)
            for label, part in zip(labels, parts, strict=True)
        ]
        yield {"read": read, "files": names, "error": error}


def whole():
    return encode(*pair(PACKS["bf16"], 80, 10), kv_dtype="bf16", level="linear", pack=PACKS["bf16"])


def layered(**options):
    return encode_layers(
        *pair(PACKS["bf16"], 80, 10), kv_dtype="bf16", pack=PACKS["bf16"], **options
    )


def bad_sections():
    record, (base, enhancement) = whole(), layered()
    yield "decode", "cut_in_section", [record[:100]], TRUNCATED
    yield "decode", "part_3", [changed(record, SECTION + 32, 3)], UNSUPPORTED
    yield "decode", "reserved", [changed(record, SECTION + 39, 1)], UNSUPPORTED
    yield "decode", "setting_of_whole", [changed(record, 112, 1)], UNSUPPORTED
    yield "decode_base", "setting_0_of_base", [changed(base, 115, 0)], UNSUPPORTED
    yield "decode_base", "setting_4", [changed(base, 115, 4)], UNSUPPORTED
    yield "decode", "section_checksum", [changed(record, 80, record[80] ^ 1, seal=False)], CORRUPT
    yield "decode", "no_pack", [changed(record, SECTION, record[SECTION] ^ 1)], UNAVAILABLE
    other = bytes.fromhex(PACKS["fp16"].digest)
    yield "decode", "pack_of_another_shape", [changed(record, SECTION, *other)], CORRUPT
    yield "decode", "base_as_whole", [base], USAGE
    yield "decode_base", "whole_as_base", [record], USAGE
    yield "decode_base", "enhancement_as_base", [enhancement], USAGE
    yield "decode_base", "base_said_to_be_enhancement", [changed(base, SECTION + 32, 2)], USAGE


def bad_rows():
    record, (base, enhancement) = whole(), layered()
    fast = encode(*pair(PACKS["bf16"], 80, 10), kv_dtype="bf16", level="fast")
    yield "decode", "linear_in_level_fast", [changed(fast, 40 + 7, 3)], CORRUPT
    yield "decode", "nothing_in_whole", [with_chunk(record, 0, b"", encoding=4)], CORRUPT
    yield "decode_base", "zstd_in_base", [with_chunk(base, 0, b"zstd", encoding=1)], CORRUPT
    yield "decode_base", "nothing_in_base", [with_chunk(base, 0, b"", encoding=4)], CORRUPT
    raw = with_chunk(enhancement, 0, bytes(2880), encoding=0)
    yield "decode_layers", "raw_in_enhancement", [base, raw], CORRUPT
    nothing = xxhash.xxh3_64_intdigest(b"")
    row = row_of(enhancement, 0)
    long = with_chunk(enhancement, 0, b"x", encoding=4, items=nothing)
    yield "decode_layers", "nothing_of_one_byte", [base, long], CORRUPT
    other = with_chunk(enhancement, 0, b"", encoding=4, items=1)
    yield "decode_layers", "nothing_of_other_items", [base, other], CORRUPT
    yield "decode", "linear_no_bytes", [with_chunk(record, 0, b"", encoding=3)], CORRUPT
    yield "decode", "linear_longer_than_items", [with_chunk(record, 0, bytes(2880), 3)], CORRUPT
    changed_sum = changed(record, row_of(record, 3) + 16, record[row_of(record, 3) + 16] ^ 1)
    yield "decode", "linear_other_items", [changed_sum], CORRUPT
    changed_sum = changed(enhancement, row + 16, enhancement[row + 16] ^ 1)
    yield "decode_layers", "enhancement_of_other_items", [base, changed_sum], CORRUPT


def bad_twins():
    base, enhancement = layered()
    nothing = xxhash.xxh3_64_intdigest(b"")
    yield "decode_layers", "other_kv_digest", [base, changed(enhancement, 80, 0)], CORRUPT
    yield "decode_layers", "other_pack", [base, changed(enhancement, 40, 0)], CORRUPT
    other = layered(base_step="sigma/2")
    yield "decode_layers", "other_settings", [base, other.enhancement], CORRUPT
    yield "decode_layers", "enhancement_first", [enhancement, base], USAGE
    yield "decode_layers", "two_bases", [base, base], USAGE
    empty = with_chunk(enhancement, 0, b"", encoding=4, items=nothing)
    yield "decode_layers", "nothing_beside_linear", [base, empty], CORRUPT
    k, _ = pair(PACKS["bf16"], 80, 10)
    raw = with_chunk(base, 0, k[0].tobytes(), encoding=0, items=None)
    yield "decode_layers", "linear_beside_raw", [raw, enhancement], CORRUPT


def bad_bodies():
    yield from bad_bases()
    yield from bad_enhancements()
    strange = pair(PACKS["fp8_e5m2"], 200, 70, strange=0.1)
    fp8 = encode(*strange, kv_dtype="fp8_e5m2", level="linear", pack=PACKS["fp8_e5m2"])
    escape = escapes_of(chunk_of(fp8, 0))
    yield (
        "decode",
        "escape_over_eight_bits",
        [in_chunk(fp8, escape, 256, encoding=3, fmt="H")],
        CORRUPT,
    )


def escapes_of(body):
    """Return where the escapes are, behind 32 lanes."""
    return 4 + 192 + 2 * sum(struct.unpack_from("<32H", body, 4 + 128))


def bad_bases():
    base = layered().base
    body = chunk_of(base, 0)
    (num_escapes,) = struct.unpack_from("<I", body)
    first, second = struct.unpack_from("<HH", body, 132)
    damages = {
        "base_no_bytes_but_three": body[:3],
        "base_head_only": body[:196],
        "base_one_byte_more": body + b"\0",
        "base_one_byte_fewer": body[:-1],
        "base_absurd_escapes": struct.pack("<I", 2**32 - 1) + body[4:],
        "base_one_escape_more": struct.pack("<I", num_escapes + 1) + body[4:] + b"\0\0",
        "base_one_escape_fewer": struct.pack("<I", num_escapes - 1) + body[4:-2],
        "base_state_below_bound": body[:4] + struct.pack("<I", 65_535) + body[8:],
        "base_other_state": body[:4] + struct.pack("<I", 65_536) + body[8:],
        "base_lengths_shifted": body[:132] + struct.pack("<HH", first + 1, second - 1) + body[136:],
        "base_absurd_length": body[:132] + struct.pack("<H", 65_535) + body[134:],
        "base_other_word": body[:196] + bytes([body[196] ^ 1]) + body[197:],
    }
    for name, damaged in damages.items():
        yield "decode_base", name, [with_chunk(base, 0, damaged, encoding=3, items=None)], CORRUPT


def bad_enhancements():
    base, enhancement = layered()
    body = chunk_of(enhancement, 0)
    damages = {
        "enhancement_head_only": body[:192],
        "enhancement_one_byte_more": body + b"\0",
        "enhancement_one_byte_fewer": body[:-1],
        "enhancement_state_below_bound": struct.pack("<I", 65_535) + body[4:],
        "enhancement_absurd_length": body[:128] + struct.pack("<H", 65_535) + body[130:],
        "enhancement_other_word": body[:192] + bytes([body[192] ^ 1]) + body[193:],
        "enhancement_other_rest": body[:-9] + bytes([body[-9] ^ 1]) + body[-8:],
    }
    for name, damaged in damages.items():
        record = with_chunk(enhancement, 0, damaged, encoding=3, items=None)
        yield "decode_layers", name, [base, record], CORRUPT
    pack = PACKS["fp32"]
    record = encode(*pair(pack, 80, 10), kv_dtype="fp32", level="linear", pack=pack)
    short = with_chunk(record, 0, chunk_of(record, 0)[:-2], encoding=3, items=None)
    yield "decode", "fp32_two_bytes_fewer", [short], CORRUPT


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    path, files = FOLDER / "manifest.json", {}
    manifest = json.loads(path.read_text()) if path.exists() else {"files": {}, "vectors": []}
    known = {(vector["read"], *vector["files"]) for vector in manifest["vectors"]}
    for vector in (*valid_vectors(files), *invalid_vectors(files)):
        if (vector["read"], *vector["files"]) not in known:
            manifest["vectors"].append(vector)
    for name, data in files.items():
        if name not in manifest["files"]:
            (FOLDER / name).write_bytes(data)
            manifest["files"][name] = hashlib.sha256(data).hexdigest()
    path.write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
