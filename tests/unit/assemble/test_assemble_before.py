"""What a packet repeats of those before it: by token ids, whatever else lies there."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.assemble import Predecessors

pytestmark = pytest.mark.property

segments = st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=4)


def by_hand(earlier, segment, index):
    """Follow the definition, a token at a time."""
    token, pair = segment[index], tuple(segment[index - 1 : index + 1])
    own_pairs = list(pairwise(segment[:index]))
    pairs = [p for one in earlier for p in pairwise(one)]
    if index and pair in pairs and pair not in own_pairs:
        return 2
    is_new = token not in segment[:index]
    return int(is_new and any(token in one for one in earlier))


@given(segments)
def test_repeats_are_those_of_the_definition(prompt):
    predecessors, positions = Predecessors(), 0
    for number, segment in enumerate(prompt):
        before = predecessors.then(segment, len(segment) + 2)
        expected = [by_hand(prompt[:number], segment, i) for i in range(len(segment))]
        assert before.repeats.dtype == np.uint8
        assert before.repeats.tolist() == expected
        assert before.positions == positions
        positions += len(segment) + 2
