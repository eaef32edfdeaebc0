"""Damage to a record that is read layer by layer: no layer is ever given with other bits."""

import functools

import numpy as np
import pytest

from kvpacket_store import errors
from kvpacket_store.codec import encode, encode_layers, open_record
from kvpacket_store.codec.chunk_order import chunks_of
from kvpacket_store.codec.frame import parse_head
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack

pytestmark = pytest.mark.fault

PACK = make_pack(PackShape(3, 1, 5, 1), "bf16", 1)
K, V = (make_items((3, 1, 390, 5), "bf16", seed, 0.01) for seed in (1, 2))
FORMS = ["raw", "fast", "whole", "layers", "base"]


@functools.cache
def records_of(form):
    if form in ("raw", "fast"):
        return (encode(K, V, kv_dtype="bf16", level=form),)
    if form == "whole":
        return (encode(K, V, kv_dtype="bf16", level="linear", pack=PACK),)
    layers = encode_layers(K, V, kv_dtype="bf16", pack=PACK)
    return tuple(layers) if form == "layers" else layers[:1]


@functools.cache
def sound_layers(form):
    return read_until_it_fails(records_of(form))[0]


def read_until_it_fails(records):
    """Return the layers that could be read, and the error that ended them, or None."""
    found = []
    try:
        reader = open_record(*records, packs=[PACK])
        for i in range(3):
            k, v = reader.layer(i)
            found.append((k, v))
    except errors.CodecError as error:
        return found, error
    return found, None


def flipped(records, which, place):
    damaged = [bytearray(record) for record in records]
    damaged[which][place] ^= 0x10
    return damaged


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_met_in_its_layer_and_no_other_bits_are_given(form):
    records = records_of(form)
    for which, record in enumerate(records):
        frame = parse_head(memoryview(record))
        for chunk, entry in zip(chunks_of(frame.shape), frame.entries, strict=True):
            places = {entry.offset, entry.offset + entry.length // 2} if entry.length else ()
            for place in places:
                found, error = read_until_it_fails(flipped(records, which, place))
                assert isinstance(error, errors.CorruptRecordError)
                assert len(found) == chunk.layer
                assert all(map(np.array_equal, found, sound_layers(form)))


@pytest.mark.parametrize("form", FORMS)
def test_damage_to_a_head_leaves_nothing_to_read(form):
    records = records_of(form)
    for which, record in enumerate(records):
        for place in range(0, parse_head(memoryview(record)).head_bytes, 3):
            found, error = read_until_it_fails(flipped(records, which, place))
            assert error
            assert found == []


@pytest.mark.parametrize("form", FORMS)
def test_a_record_cut_anywhere_is_not_opened(form):
    *others, record = records_of(form)
    for end in range(0, len(record), 41):
        with pytest.raises(errors.TruncatedRecordError):
            open_record(*others, record[:end], packs=[PACK])


def test_streams_of_two_records_in_one_are_found_where_they_part():
    """The rows are sound, and each chunk is: only its layer is another prefill's."""
    other = encode(K, V ^ np.uint16(1), kv_dtype="bf16", level="raw")
    (record,) = records_of("raw")
    last = parse_head(memoryview(record)).entries[-1].offset
    found, error = read_until_it_fails((record[:last] + other[last:],))
    assert isinstance(error, errors.CorruptRecordError)
    assert len(found) == 2


@pytest.mark.parametrize("form", FORMS)
def test_after_damage_nothing_more_is_read(form):
    records = records_of(form)
    place = parse_head(memoryview(records[-1])).entries[0].offset
    reader = open_record(*flipped(records, -1, place), packs=[PACK])
    with pytest.raises(errors.CorruptRecordError):
        reader.layer(0)
    for i in range(2):
        with pytest.raises(errors.UsageError):
            reader.layer(i)
