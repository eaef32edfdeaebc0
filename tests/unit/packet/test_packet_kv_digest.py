import numpy as np
import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.packet import kv_digest


def arrays():
    rng = np.random.default_rng(0)
    return (rng.integers(0, 65536, (2, 3, 4, 5), dtype=np.uint16) for _ in range(2))


def test_one_bit_anywhere_counts():
    k, v = arrays()
    seen = {kv_digest(k, v)}
    for array in (k, v):
        for place in ((0, 0, 0, 0), (1, 2, 3, 4)):
            array[place] ^= 1
            seen.add(kv_digest(k, v))
            array[place] ^= 1
    assert len(seen) == 5


def test_order_shape_and_item_size_count():
    k, v = arrays()
    assert kv_digest(k, v) != kv_digest(v, k)
    assert kv_digest(k, v) != kv_digest(k.reshape(2, 4, 3, 5), v.reshape(2, 4, 3, 5))
    assert kv_digest(k.view(np.uint8), v.view(np.uint8)) != kv_digest(k, v)
    empty = [np.zeros(shape, np.uint16) for shape in ((0, 1, 2, 3), (1, 0, 2, 3), (1, 2, 3, 0))]
    assert len({kv_digest(array, array) for array in empty}) == 3


def test_strides_and_byte_order_do_not_count():
    k, v = arrays()
    strided = np.asfortranarray(k)
    assert kv_digest(strided, v.astype(">u2")) == kv_digest(k, v)


@pytest.mark.parametrize("wrong", [None, [1], np.zeros((2, 2), np.uint16), np.zeros((1, 1, 1, 1))])
def test_what_is_no_bit_pattern_is_refused(wrong):
    k, _ = arrays()
    with pytest.raises(UsageError, match="kv digest: v"):
        kv_digest(k, wrong)
