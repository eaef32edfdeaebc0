"""Level linear: every bit comes back from any pack; a base is what it says; no damage gets by."""

import functools
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpacket_store import errors
from kvpacket_store.codec import decode, decode_base, decode_layers, encode, encode_layers
from kvpacket_store.codec.checksum import checksum
from kvpacket_store.codec.frame import Encoding, parse_head
from kvpacket_store.codec.linear.body import Place, decode_parts, new_context, split_parts
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.linear.prepared import Prepared
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack, make_wild_pack
from kvpacket_store.codec.linear.values import bins_of, coded_half
from kvpacket_store.types import KVDtype

pytestmark = pytest.mark.property
# no deadlines: the first example compiles the kernels

SHAPES = st.builds(
    PackShape,
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([1, 5, 16, 19]),
    st.integers(0, 3),
)
TOKENS = st.sampled_from([0, 1, 2, 31, 37, 100, 384])
STEPS = st.sampled_from(["sigma/8", "sigma/4", "sigma/2"])
SEEDS = st.integers(0, 2**32)
BASE_HEAD = struct.Struct("<I")


@st.composite
def packets(draw, tokens=TOKENS):
    """Draw (pack, k, v): any numbers or such as predict; values, or bits of any kind."""
    make = draw(st.sampled_from([make_pack, make_pack, make_wild_pack]))
    pack = make(draw(SHAPES), draw(st.sampled_from(KVDtype)), draw(SEEDS))
    shape = (pack.shape.layers, pack.shape.heads, draw(tokens), pack.shape.head_dim)
    strange = draw(st.sampled_from([0, 0.01, 0.2, 1]))
    k, v = (make_items(shape, pack.kv_dtype, draw(SEEDS), strange) for _ in range(2))
    if draw(st.booleans()):
        k[0] = draw(st.integers(0, (1 << 8 * k.itemsize) - 1))
    return pack, k, v


def require_equal(found, expected):
    for decoded, source in zip(found, expected, strict=True):
        assert decoded.dtype == source.dtype
        assert np.array_equal(decoded, source)


@given(packets())
@settings(deadline=None)
def test_every_bit_comes_back(packet):
    pack, k, v = packet
    record = encode(k, v, kv_dtype=pack.kv_dtype, level="linear", pack=pack)
    require_equal(decode(record, packs=[pack]), (k, v))
    head_bytes = 48 + 72 + 2 * len(k) + 48 * len(k) * max((k.shape[2] + 128) // 256, 1)
    assert len(record) <= head_bytes + k.nbytes + v.nbytes


@given(packets(), st.data())
@settings(deadline=None)
def test_every_bit_comes_back_from_two_layers(packet, data):
    pack, k, v = packet
    step = data.draw(
        st.one_of(STEPS, st.lists(st.tuples(STEPS, STEPS), min_size=len(k), max_size=len(k)))
    )
    layers = encode_layers(k, v, kv_dtype=pack.kv_dtype, pack=pack, base_step=step)
    require_equal(decode_layers(*layers, packs=[pack]), (k, v))
    near = decode_base(layers.base, packs=[pack])
    require_equal(near, decode_base(layers.base, packs=[pack]))
    assert all(side.shape == k.shape for side in near)


@given(packets(), STEPS)
@settings(deadline=None)
def test_a_base_gives_every_item_s_coarse_bin(packet, step):
    """Without the enhancement, and by the bins of whole arrays, which the kernels do not use."""
    pack, k, v = packet
    base, _ = encode_layers(k, v, kv_dtype=pack.kv_dtype, pack=pack, base_step=step)
    setting = 1 + ["sigma/8", "sigma/4", "sigma/2"].index(step)
    for side, (near, exact) in enumerate(zip(decode_base(base, packs=[pack]), (k, v), strict=True)):
        for layer in range(len(k)):
            steps, drops = pack.steps[layer, side], pack.drops[setting, layer, side]
            bins = [
                bins_of(by_channel(items[layer]), steps, pack.kv_dtype) >> drops
                for items in (near, exact)
            ]
            reachable = ~goes_over(by_channel(exact[layer]), steps, drops, pack.kv_dtype)
            assert np.array_equal(bins[0][reachable], bins[1][reachable])


def by_channel(items):
    num_heads, num_tokens, head_dim = items.shape
    return items.transpose(1, 0, 2).reshape(num_tokens, num_heads * head_dim)


def goes_over(items, steps, drops, kv_dtype):
    """Return where a coarse bin reaches over the largest exponent: rebuilt items wrap around."""
    exponent_bits = {"bf16": 8, "fp16": 5, "fp32": 8, "fp8_e4m3": 4, "fp8_e5m2": 5}[kv_dtype.value]
    mantissa_bits = min(8 * items.itemsize, 16) - 1 - exponent_bits
    exponents = coded_half(items, kv_dtype).astype(np.int64) >> mantissa_bits
    exponents &= (1 << exponent_bits) - 1
    return np.maximum(exponents, steps.astype(np.int64) + drops) >= (1 << exponent_bits) - 1


@functools.cache
def sample(layered):
    """A pack, K and V, and their record or base and enhancement."""
    pack = make_pack(PackShape(2, 1, 18, 1), "bf16", 1)
    k, v = (make_items((2, 1, 90, 18), "bf16", seed, 0.01) for seed in (1, 2))
    if layered:
        records = tuple(encode_layers(k, v, kv_dtype="bf16", pack=pack))
    else:
        records = (encode(k, v, kv_dtype="bf16", level="linear", pack=pack),)
    frames = [parse_head(memoryview(record)) for record in records]
    assert all(e.encoding is Encoding.LINEAR for frame in frames for e in frame.entries)
    return pack, (k, v), records


@st.composite
def changes(draw, data, first=0):
    """Draw bytes that differ from ``data`` from ``first`` on."""
    at = draw(st.integers(first, len(data) - 1))
    changed = bytearray(data)
    for place in range(at, min(len(data), at + draw(st.sampled_from([1, 1, 2, 8])))):
        changed[place] ^= draw(st.integers(1, 255))
    return bytes(changed)


@given(st.data(), st.booleans(), st.booleans())
@settings(deadline=None)
def test_damage_of_a_record_is_found(data, layered, of_the_last):
    pack, _, records = sample(layered)
    damaged = list(records)
    damaged[-of_the_last] = data.draw(changes(damaged[-of_the_last]))
    with pytest.raises(errors.CodecError):
        (decode_layers if layered else decode)(*damaged, packs=[pack])


@given(st.data(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_damage_under_right_checksums_is_found_or_says_nothing(data, layered, of_the_last):
    """Kernels are given what no checksum has stopped: an error of ours, or the same bits."""
    pack, pair, records = sample(layered)
    damaged = list(records)
    damaged[-of_the_last] = resealed(data.draw(changes(damaged[-of_the_last], head_bytes(2, 4))))
    try:
        found = (decode_layers if layered else decode)(*damaged, packs=[pack])
    except errors.CodecError:
        return
    require_equal(found, pair)


def head_bytes(num_layers, num_chunks):
    return 40 + 72 + 2 * num_layers + 24 * num_chunks + 8


def resealed(record):
    """Return a record whose stored checksums are those of what it stores now."""
    out, begin = bytearray(record), head_bytes(2, 4)
    for row in range(116, begin - 8, 24):
        (length,) = struct.unpack_from("<I", out, row)
        struct.pack_into("<Q", out, row + 8, checksum(bytes(out[begin : begin + length])))
        begin += length
    struct.pack_into("<Q", out, head_bytes(2, 4) - 8, checksum(bytes(out[: head_bytes(2, 4) - 8])))
    return bytes(out)


@given(st.data())
@settings(deadline=None)
def test_a_damaged_pack_is_refused_or_another(data):
    pack = make_pack(PackShape(1, 1, 3, 1))
    file = pack.to_bytes()
    try:
        found = CodecPack.from_bytes(data.draw(changes(file)))
    except errors.CodecError:
        return
    assert found.digest != pack.digest or found.to_bytes() == file


@given(st.data(), st.sampled_from(KVDtype))
@settings(deadline=None, max_examples=300)
def test_any_pack_that_is_read_codes_anything(data, kv_dtype):
    file = make_pack(PackShape(1, 1, 3, 1), kv_dtype).to_bytes()
    contents = data.draw(changes(zstandard.decompress(file[14:])))
    file = file[:10] + struct.pack("<I", len(contents)) + zstandard.compress(contents)
    try:
        pack = CodecPack.from_bytes(file)
    except errors.CodecError:
        return
    shape = (pack.shape.layers, pack.shape.heads, 40, pack.shape.head_dim)
    k = make_items(shape, pack.kv_dtype, data.draw(SEEDS), 0.1)
    record = encode(k, k, kv_dtype=pack.kv_dtype, level="linear", pack=pack)
    require_equal(decode(record, packs=[pack]), (k, k))


@st.composite
def bodies(draw, num_tokens, num_lanes_sections=1):
    """Draw bytes, or lane sections that hold together and words of any kind."""
    rng = np.random.default_rng(draw(SEEDS))
    if draw(st.booleans()):
        return rng.bytes(draw(st.integers(0, 900)))
    num_lanes, parts = min(32, num_tokens), []
    for _ in range(num_lanes_sections):
        lengths = rng.integers(0, draw(st.sampled_from([1, 5, 200])), num_lanes)
        states = rng.integers(1 << 16, 1 << 32, num_lanes)
        words = rng.bytes(2 * int(lengths.sum()))
        parts.append(states.astype("<u4").tobytes() + lengths.astype("<u2").tobytes() + words)
    return b"".join(parts)


@given(st.data(), st.sampled_from(KVDtype), st.booleans(), st.integers(0, 3))
@settings(deadline=None, max_examples=300)
def test_parts_of_any_bytes_are_refused(data, kv_dtype, is_wild, setting):
    num_tokens = data.draw(st.sampled_from([1, 31, 37]))
    make = make_wild_pack if is_wild else make_pack
    prepared = Prepared(make(PackShape(1, 1, 5, 1), kv_dtype, data.draw(st.integers(0, 9))))
    num_escapes = data.draw(st.sampled_from([0, 1, 9, 2**32 - 1]))
    base = BASE_HEAD.pack(num_escapes) + data.draw(bodies(num_tokens))
    base += bytes(2 * num_escapes) if num_escapes < 10 else b""
    rest = data.draw(st.one_of(st.none(), bodies(num_tokens, 1), st.binary(max_size=99)))
    outs = tuple(np.empty((1, num_tokens, 5), np.uint16) for _ in range(2))
    if rest is None:
        outs = (np.empty((0, 0, 0), np.uint16), outs[1])
    context = new_context(prepared, num_tokens)
    with pytest.raises(errors.CorruptRecordError):
        decode_parts((base, rest), prepared, Place(0, 1, setting), context, outs)


@given(st.binary(max_size=600), st.sampled_from([1, 31, 37]))
@settings(deadline=None)
def test_a_whole_chunk_of_any_bytes_is_split_or_refused(data, num_tokens):
    try:
        parts = split_parts(data, num_tokens)
    except errors.CorruptRecordError:
        return
    assert b"".join(parts) == data
