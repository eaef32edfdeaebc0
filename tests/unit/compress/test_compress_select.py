"""Selection: the largest scores, ties to the lowest position, always the first and recent slots."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.compress.select import kept_count, kept_positions

pytestmark = pytest.mark.property


def selection_reference(scores, count, first, recent):
    """Take what is always kept, then the best of the rest one by one."""
    size = len(scores)
    always = [at for at in range(size) if at < first or at >= size - recent]
    rest = [at for at in range(size) if at not in always]
    rest.sort(key=lambda at: (scores[at] != scores[at], -scores[at], at))
    return sorted((always + rest)[:count])


@given(
    # few different values, so that there are ties
    rows=st.integers(1, 60).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([-1e30, -1.0, 0.0, 0.5, 2.0]), min_size=size, max_size=size),
            min_size=1,
            max_size=4,
        )
    ),
    share=st.floats(0.001, 1),
    first=st.integers(0, 9),
    recent=st.integers(0, 9),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_kept_are_the_best_of_any_shape_and_share(rows, share, first, recent, dtype):
    scores = torch.tensor(rows).to(dtype)
    size = scores.shape[-1]
    count = kept_count(size, share, first + recent)
    assert min(size, max(1, first + recent)) <= count <= size
    assert count in (round(share * size), 1, first + recent, size)
    before = scores.clone()
    kept = kept_positions(scores, count, first, recent)
    assert torch.equal(scores, before)
    assert kept.shape == (len(rows), count)
    for positions, row in zip(kept.tolist(), scores.tolist(), strict=True):
        assert positions == selection_reference(row, count, first, recent)


def test_nan_is_kept_last_and_infinities_in_their_order():
    scores = torch.tensor([float("nan"), float("-inf"), 0.0, float("inf"), float("nan")])
    assert kept_positions(scores, 1, 0, 0).tolist() == [3]
    assert kept_positions(scores, 3, 0, 0).tolist() == [1, 2, 3]
    assert kept_positions(scores, 2, 0, 1).tolist() == [3, 4]
