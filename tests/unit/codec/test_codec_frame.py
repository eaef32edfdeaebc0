import dataclasses

import pytest

from kvpacket_store import errors
from kvpacket_store.codec.chunk_order import Chunk, block_tokens, chunks_of, num_blocks
from kvpacket_store.codec.frame import (
    MAX_LAYERS,
    ChunkEntry,
    Encoding,
    Frame,
    pack_head,
    parse_head,
)
from kvpacket_store.types import KVDtype


def empty_record(num_layers):
    """A record of no tokens: all head."""
    num_chunks = 2 * num_layers
    nothing = ChunkEntry(48 + 24 * num_chunks, 0, Encoding.RAW, 7, 7)
    return Frame("raw", KVDtype.BF16, (num_layers, 1, 0, 1), (nothing,) * num_chunks)


def test_what_is_packed_is_parsed():
    frame = empty_record(3)
    head = pack_head(frame)
    assert len(head) == frame.head_bytes == 40 + 6 * 24 + 8
    assert parse_head(memoryview(head)) == frame
    assert frame.raw_bytes == 0


def test_layers_have_a_limit():
    assert len(parse_head(memoryview(pack_head(empty_record(MAX_LAYERS)))).entries) == 131_070
    with pytest.raises(errors.CorruptRecordError, match="shape"):
        parse_head(memoryview(pack_head(empty_record(MAX_LAYERS + 1))))


def test_chunks_are_ordered_by_layer_then_k_before_v_then_block():
    nothing = empty_record(1).entries[0]
    entries = tuple(dataclasses.replace(nothing, offset=number) for number in range(12))
    frame = Frame("fast", KVDtype.BF16, (2, 1, 700, 1), entries)
    order = [
        frame.entry(Chunk(i, side, b)) for i in range(2) for side in range(2) for b in range(3)
    ]
    assert tuple(order) == entries
    assert tuple(map(frame.entry, chunks_of(frame.shape))) == entries


@pytest.mark.parametrize(
    ("num_tokens", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (256, [256]),
        (383, [383]),
        (384, [256, 128]),
        (639, [256, 383]),
        (640, [256, 256, 128]),
    ],
)
def test_blocks_have_256_tokens_but_the_last(num_tokens, sizes):
    assert num_blocks(num_tokens) == len(sizes)
    blocks = [block_tokens(num_tokens, block) for block in range(len(sizes))]
    assert [block.stop - block.start for block in blocks] == sizes
    assert blocks[-1].stop == num_tokens
