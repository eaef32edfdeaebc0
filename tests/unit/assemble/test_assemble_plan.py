"""Planning is arithmetic: spans are contiguous, and too long a prompt says by how much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.assemble import plan_assembly
from kvpacket_store.errors import ContextOverflowError, UsageError


@given(
    preamble=st.integers(0, 50),
    packets=st.lists(st.integers(0, 600), max_size=12),
    question=st.integers(1, 100),
    new=st.integers(1, 100),
)
def test_spans_follow_each_other_without_gap(preamble, packets, question, new):
    plan = plan_assembly(
        preamble_tokens=preamble,
        packet_positions=packets,
        question_tokens=question,
        max_new_tokens=new,
        max_positions=10_000,
    )
    ends = [start + n for start, n in zip(plan.packet_starts, packets, strict=True)]
    assert list(plan.packet_starts) == [preamble, *ends][: len(packets)]
    assert plan.question_start == (ends[-1] if ends else preamble)
    assert plan.prompt_positions == preamble + sum(packets) + question
    assert plan.num_slots == plan.prompt_positions + new


def test_too_long_a_prompt_names_the_excess():
    with pytest.raises(ContextOverflowError, match=r"need 120 .*has 100: 20 too many"):
        plan_assembly(
            preamble_tokens=10,
            packet_positions=[50, 40],
            question_tokens=10,
            max_new_tokens=10,
            max_positions=100,
        )


@pytest.mark.parametrize(("question", "new"), [(0, 5), (5, 0)])
def test_nothing_to_ask_or_to_answer_is_refused(question, new):
    with pytest.raises(UsageError):
        plan_assembly(
            preamble_tokens=1,
            packet_positions=[],
            question_tokens=question,
            max_new_tokens=new,
            max_positions=100,
        )
