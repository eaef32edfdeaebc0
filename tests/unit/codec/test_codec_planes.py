import numpy as np
import pytest

from kvpacket_store.codec.planes import merge_planes, split_planes


@pytest.mark.parametrize(
    ("dtype", "item", "planes"),
    [
        (np.uint16, 0b1_10000001_0000001, [0b10000001, 0b1_0000001]),  # bf16
        (np.uint16, 0b0_11111_0000000001, [0b11111_000, 0b0_0000001]),  # fp16
        (np.uint32, 0b1_01111111_0000101 << 16 | 0xA55A, [0b01111111, 0b1_0000101, 0xA5, 0x5A]),
        (np.uint8, 0b1_0111_101, [0b1_0111_101]),
    ],
)
def test_the_exponent_stands_alone_in_the_first_plane(dtype, item, planes):
    split = split_planes(np.array([item], dtype))
    assert [int(plane[0]) for plane in split] == planes


def test_merging_undoes_splitting_for_every_16_bit_pattern():
    every = np.arange(65536, dtype=np.uint16)
    out = np.empty_like(every)
    merge_planes(split_planes(every), out)
    assert np.array_equal(out, every)


def test_merging_undoes_splitting_for_32_bits():
    every = np.arange(65536, dtype=np.uint32)
    items = np.concatenate([every << 16 | 0xA55A, every << 8, every << 8 | 0xFF0000FF, every])
    out = np.empty_like(items)
    merge_planes(split_planes(items), out)
    assert np.array_equal(out, items)


def test_planes_of_one_chunk_survive_the_next():
    """Scratch memory is the thread's; what is returned is not in it."""
    first, second = np.full(100, 0x1234, np.uint16), np.full(100, 0xFFFF, np.uint16)
    kept = split_planes(first)
    before = [plane.copy() for plane in kept]
    split_planes(second)
    merge_planes(split_planes(second), np.empty_like(second))
    assert all(np.array_equal(a, b) for a, b in zip(kept, before, strict=True))
