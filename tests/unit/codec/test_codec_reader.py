"""A reader gives the layers that decoding gives, in order, of every level."""

import functools
import tracemalloc

import numpy as np
import pytest

from kvpacket_store.codec import (
    RecordReader,
    decode,
    decode_base,
    decode_layers,
    encode,
    encode_layers,
    open_record,
)
from kvpacket_store.codec.frame import Encoding, parse_head
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack
from kvpacket_store.errors import (
    CorruptRecordError,
    LevelUnavailableError,
    TruncatedRecordError,
    UsageError,
)
from kvpacket_store.types import KVDtype

TOKENS = [0, 1, 255, 256, 257, 600]
FORMS = ["raw", "fast", "whole", "layers", "base"]


@functools.cache
def pack_of(kv_dtype, back=1):
    return make_pack(PackShape(4, 2, 9, back), kv_dtype, 3)


@functools.cache
def pair_of(kv_dtype, num_tokens):
    pair = [make_items((4, 2, num_tokens, 9), kv_dtype, seed, 0.01) for seed in (1, 2)]
    pair[1][2] = 5  # a layer that is stored otherwise: zstd
    return pair


@functools.cache
def records_of(form, kv_dtype, num_tokens, back=1):
    """Return the records of a form, what decoding them gives, and the packs that it takes."""
    pair, pack = pair_of(kv_dtype, num_tokens), pack_of(kv_dtype, back)
    if form in ("raw", "fast"):
        record = encode(*pair, kv_dtype=kv_dtype, level=form)
        return (record,), decode(record), ()
    if form == "whole":
        record = encode(*pair, kv_dtype=kv_dtype, level="linear", pack=pack)
        return (record,), decode(record, packs=[pack]), (pack,)
    layers = encode_layers(*pair, kv_dtype=kv_dtype, pack=pack)
    if form == "base":
        return layers[:1], decode_base(layers.base, packs=[pack]), (pack,)
    return tuple(layers), decode_layers(*layers, packs=[pack]), (pack,)


def read_all(reader):
    return [np.stack(side) for side in zip(*map(reader.layer, range(reader.shape[0])), strict=True)]


@pytest.mark.parametrize("num_tokens", TOKENS)
@pytest.mark.parametrize("kv_dtype", KVDtype)
@pytest.mark.parametrize("form", FORMS)
def test_layers_are_those_of_decoding(form, kv_dtype, num_tokens):
    records, expected, packs = records_of(form, kv_dtype, num_tokens)
    reader = open_record(*records, packs=packs)
    assert isinstance(reader, RecordReader)
    assert (reader.shape, reader.kv_dtype) == ((4, 2, num_tokens, 9), kv_dtype)
    for i in range(4):
        for side, whole in zip(reader.layer(i), expected, strict=True):
            assert side.dtype == kv_dtype.bits_dtype
            assert side.flags.c_contiguous
            assert side.flags.writeable
            assert np.array_equal(side, whole[i])
    if form != "base":
        assert all(map(np.array_equal, expected, pair_of(kv_dtype, num_tokens)))


@pytest.mark.parametrize("back", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("form", ["whole", "layers", "base"])
def test_however_far_predictions_look_back(form, back):
    records, expected, packs = records_of(form, KVDtype.BF16, 300, back)
    assert Encoding.LINEAR in {
        entry.encoding for entry in parse_head(memoryview(records[0])).entries
    }
    assert all(map(np.array_equal, read_all(open_record(*records, packs=packs)), expected))


def test_two_readers_of_one_record_do_not_meet():
    records, expected, packs = records_of("whole", KVDtype.BF16, 257)
    readers = [open_record(*records, packs=packs) for _ in range(2)]
    for i in range(4):
        for reader in readers:
            assert np.array_equal(reader.layer(i)[1], expected[1][i])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("before", "wrong"), [(0, 1), (0, -1), (1, 0), (2, 1), (4, 4), (4, 0)])
def test_layers_come_in_order(form, before, wrong):
    records, expected, packs = records_of(form, KVDtype.BF16, 1)
    reader = open_record(*records, packs=packs)
    for i in range(before):
        reader.layer(i)
    with pytest.raises(UsageError, match="not next"):
        reader.layer(wrong)
    if before < 4:
        assert np.array_equal(reader.layer(before)[0], expected[0][before])


def test_a_record_of_no_layers_has_none():
    nothing = np.zeros((0, 2, 3, 4), np.uint16)
    reader = open_record(encode(nothing, nothing, kv_dtype="bf16"))
    assert reader.shape == (0, 2, 3, 4)
    with pytest.raises(UsageError, match="0 of 0"):
        reader.layer(0)


@pytest.mark.parametrize("form", FORMS)
def test_too_much_is_refused_at_once(form):
    records, expected, packs = records_of(form, KVDtype.BF16, 256)
    num_bytes = 2 * expected[0].nbytes
    open_record(*records, packs=packs, max_bytes=num_bytes)
    with pytest.raises(CorruptRecordError, match="max_bytes"):
        open_record(*records, packs=packs, max_bytes=num_bytes - 1)


def test_records_that_make_no_reader():
    layers, _, packs = records_of("layers", KVDtype.BF16, 256)
    whole, _, _ = records_of("whole", KVDtype.BF16, 256)
    fast, _, _ = records_of("fast", KVDtype.BF16, 256)
    for records in (layers[1:], layers[::-1], (*whole, layers[1]), (*fast, layers[1]), (b"", 5)):
        with pytest.raises((UsageError, TruncatedRecordError)):
            open_record(*records, packs=packs)
    with pytest.raises(LevelUnavailableError):
        open_record(*layers, packs=())
    with pytest.raises(UsageError):
        open_record(*layers, packs=["no pack"])


@pytest.mark.parametrize("change", ["prefill", "step"])
def test_a_base_of_another_prefill_or_step_is_no_twin(change):
    (base, _), _, packs = records_of("layers", KVDtype.BF16, 256)
    k, v = pair_of(KVDtype.BF16, 256)
    if change == "prefill":
        other = encode_layers(k, v ^ np.uint16(1), kv_dtype="bf16", pack=packs[0])
    else:
        other = encode_layers(k, v, kv_dtype="bf16", pack=packs[0], base_step="sigma/2")
    with pytest.raises(CorruptRecordError, match="not of one packet"):
        open_record(base, other.enhancement, packs=packs)


def test_no_more_is_held_than_the_layers_that_are_looked_back_at():
    """Of 24 layers with one layer back: a reader's peak is far under what decoding holds."""
    shape = (24, 2, 512, 16)
    pack = make_pack(PackShape(24, 2, 16, 1), "bf16", 1)
    k, v = (make_items(shape, "bf16", seed, 0.01) for seed in (1, 2))
    record = encode(k, v, kv_dtype="bf16", level="linear", pack=pack)
    for i in range(2):  # compiled and prepared before it is measured
        decode(record, packs=[pack])
        reader = open_record(record, packs=[pack])
        tracemalloc.start()
        for layer in range(24):
            assert np.array_equal(reader.layer(layer)[i], (k, v)[i][layer])
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak_bytes < (k.nbytes + v.nbytes) // 3


def test_a_reader_lets_go_of_its_record_after_the_last_layer():
    record = bytearray(records_of("whole", KVDtype.BF16, 1)[0][0])
    reader = open_record(record, packs=[pack_of(KVDtype.BF16)])
    with pytest.raises(BufferError):
        record.append(0)
    read_all(reader)
    record.append(0)
