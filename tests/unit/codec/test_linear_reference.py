"""Compiled kernels of level linear and the reference: the same parts out, the same items back."""

import itertools

import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec.linear import body, kernels, reference
from kvpacket_store.codec.linear.body import Place
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.linear.prepared import Prepared
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack, make_wild_pack
from kvpacket_store.codec.linear.values import coded_half
from kvpacket_store.types import KVDtype

NOTHING = np.empty((0, 0, 0), np.uint16)
SHAPES = [  # layers, heads, head dimension, layers back; tokens
    ((3, 1, 5, 2), 1),
    ((2, 2, 9, 1), 31),
    ((3, 1, 16, 2), 37),
    ((4, 1, 3, 3), 256),
    ((2, 3, 5, 0), 383),
]
STRANGE = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 1, 0x807F, 0x0080, 0x7F7F, 0xFFC1]


def encode_with(module, items, prepared, setting):
    """Return the parts of all chunks, layer by layer, and the context that they leave."""
    context = body.new_context(prepared, items.shape[3])
    parts = [
        body.encode_parts(
            coded_half(items[layer, side], prepared.pack.kv_dtype),
            prepared, Place(layer, side, setting), context, module,
        )
        for layer, side in itertools.product(range(items.shape[0]), range(2))
    ]  # fmt: skip
    return parts, context


def decode_with(module, parts, size, prepared, setting, wanted):
    """Return exact and rebuilt items of all chunks, as far as wanted, and the context."""
    context, found = body.new_context(prepared, size[1]), []
    places = itertools.product(range(prepared.pack.shape.layers), range(2))
    for (layer, side), (base, rest) in zip(places, parts, strict=True):
        outs = tuple(np.empty(size, np.uint16) if want else NOTHING for want in wanted)
        both = (base, rest if wanted[0] else None)
        body.decode_parts(both, prepared, Place(layer, side, setting), context, outs, module)
        found.append(outs)
    return found, context


def require_agreement(items, prepared, setting):
    parts, context = encode_with(kernels, items, prepared, setting)
    expected, expected_context = encode_with(reference, items, prepared, setting)
    assert parts == expected
    assert np.array_equal(context, expected_context)
    size = items.shape[2:]
    for wanted in ((True, True), (True, False), (False, True)):
        found, left = decode_with(kernels, parts, size, prepared, setting, wanted)
        same, same_left = decode_with(reference, parts, size, prepared, setting, wanted)
        assert np.array_equal(left, context)
        assert np.array_equal(same_left, context)
        for outs, others in zip(found, same, strict=True):
            assert np.array_equal(outs[0], others[0])
            assert np.array_equal(outs[1], others[1])
        if wanted[0]:
            exact = np.array([outs[0] for outs in found]).reshape(items.shape)
            assert np.array_equal(exact, coded_half(items, prepared.pack.kv_dtype))
    return parts


@pytest.mark.parametrize("setting", range(4))
@pytest.mark.parametrize(("shape", "num_tokens"), SHAPES, ids=str)
def test_kernels_agree_with_the_reference(shape, num_tokens, setting):
    shape = PackShape(*shape)
    items = make_items((shape.layers, 2, shape.heads, num_tokens, shape.head_dim))
    places = items.reshape(-1)[:: items.size // 11 + 1]
    places[:] = STRANGE[: len(places)]
    require_agreement(items, Prepared(make_pack(shape)), setting)


@pytest.mark.parametrize("setting", [0, 3])
@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_they_agree_on_items_of_every_dtype(kv_dtype, setting):
    shape = PackShape(2, 1, 18, 1)
    prepared = Prepared(make_pack(shape, kv_dtype, seed=1))
    items = make_items((2, 2, 1, 40, 18), kv_dtype, strange=0.1)
    parts = require_agreement(items, prepared, setting)
    assert any(base[:4] != bytes(4) for base, _ in parts), "nothing escaped"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kv_dtype", KVDtype)
def test_they_agree_with_packs_of_any_numbers(kv_dtype, seed):
    pack = make_wild_pack(PackShape(2, 1, 20, 1), kv_dtype, seed)
    pack = CodecPack.from_bytes(pack.to_bytes())
    items = make_items((2, 2, 1, 35, 20), kv_dtype, seed, strange=seed / 5)
    require_agreement(items, Prepared(pack), seed % 4)


@pytest.mark.parametrize("setting", [0, 2])
def test_they_agree_on_noise_nearly_all_of_which_escapes(setting):
    shape = PackShape(2, 1, 6, 1)
    require_agreement(make_items((2, 2, 1, 33, 6), strange=1), Prepared(make_pack(shape)), setting)


@pytest.mark.parametrize("value", [0, 0x8000, 0x7FC1, 1, 0x3F80])
def test_they_agree_on_constants(value):
    items = np.full((2, 2, 1, 50, 6), value, np.uint16)
    require_agreement(items, Prepared(make_pack(PackShape(2, 1, 6, 1))), 1)


@pytest.mark.parametrize("kv_dtype", [KVDtype.BF16, KVDtype.FP8_E5M2, KVDtype.FP16])
def test_chunks_stored_otherwise_become_the_same_context(kv_dtype):
    prepared = Prepared(make_pack(PackShape(2, 1, 20, 1), kv_dtype))
    items = coded_half(make_items((1, 40, 20), kv_dtype, strange=0.3), kv_dtype)
    contexts = []
    for module in (kernels, reference):
        contexts.append(body.new_context(prepared, 40))
        body.let_be_context(items, prepared, Place(1, 1, 0), contexts[-1], module)
    assert contexts[0].any()
    assert np.array_equal(*contexts)


@pytest.mark.parametrize("setting", [0, 3])
def test_no_byte_of_a_part_leads_astray(setting):
    """Any change gives an error of ours or other items; kernels and reference see it alike."""
    prepared = Prepared(make_pack(PackShape(1, 1, 6, 1)))
    items = make_items((1, 2, 1, 37, 6), strange=0.1)
    (base, rest), place = encode_with(kernels, items, prepared, setting)[0][0], Place(0, 0, setting)
    rng, refused = np.random.default_rng(1), 0
    for at, flip in zip(range(len(base) + len(rest)), rng.integers(1, 256, 10_000), strict=False):
        whole = bytearray(base + rest)
        whole[at] ^= flip
        parts, results = (bytes(whole[: len(base)]), bytes(whole[len(base) :])), []
        for module in (kernels, reference):
            outs = (np.zeros((1, 37, 6), np.uint16), np.zeros((1, 37, 6), np.uint16))
            context = body.new_context(prepared, 37)
            try:
                body.decode_parts(parts, prepared, place, context, outs, module)
            except errors.CorruptRecordError as error:
                results.append((str(error), None))
                refused += 1
            else:
                results.append((outs[0].tobytes(), outs[1].tobytes()))
        assert results[0] == results[1]
    assert refused
