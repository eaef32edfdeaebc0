import dataclasses

import pytest

from kvpacket_store import errors
from kvpacket_store.codec.frame import (
    MAX_LAYERS,
    Encoding,
    Frame,
    StreamEntry,
    head_bytes,
    pack_head,
    parse_head,
    plane_widths,
)
from kvpacket_store.types import KVDtype


def empty_record(num_layers):
    """A record of no tokens: all head."""
    num_streams = 2 * num_layers
    nothing = StreamEntry(head_bytes(num_streams), 0, 0, 7, 7, Encoding.RAW)
    return Frame("raw", KVDtype.BF16, (num_layers, 1, 0, 1), (nothing,) * num_streams)


def test_what_is_packed_is_parsed():
    frame = empty_record(3)
    head = pack_head(frame)
    assert len(head) == frame.head_bytes == 40 + 6 * 48 + 8
    assert parse_head(memoryview(head)) == frame
    assert frame.raw_bytes == 0


def test_layers_have_a_limit():
    assert len(parse_head(memoryview(pack_head(empty_record(MAX_LAYERS)))).entries) == 131_070
    with pytest.raises(errors.CorruptRecordError, match="shape"):
        parse_head(memoryview(pack_head(empty_record(MAX_LAYERS + 1))))


def test_chunks_are_ordered_by_layer_then_k_before_v_then_plane():
    entries = tuple(
        dataclasses.replace(empty_record(1).entries[0], offset=number) for number in range(12)
    )
    frame = Frame("fast", KVDtype.BF16, (3, 1, 0, 1), entries)
    order = [entry for layer in range(3) for side in range(2) for entry in frame.chunk(layer, side)]
    assert tuple(order) == entries


@pytest.mark.parametrize("kv_dtype", KVDtype)
@pytest.mark.parametrize("level", ["raw", "fast"])
def test_planes_together_have_the_bytes_of_an_item(level, kv_dtype):
    assert sum(plane_widths(level, kv_dtype)) == kv_dtype.itemsize_bytes
