"""Which span goes to which positions. Pure arithmetic; position and slot agree here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvpacket_store.errors import ContextOverflowError, UsageError

__all__ = ["AssemblyPlan", "plan_assembly"]


@dataclass(frozen=True, slots=True)
class AssemblyPlan:
    """The spans of an assembled prompt, contiguous from position 0.

    Attributes
    ----------
    preamble_tokens : int
        Positions 0 to ``preamble_tokens``.
    packet_starts : tuple of int
        First position of each packet, in prompt order.
    question_start : int
        First position of the question.
    prompt_positions : int
        Everything, soft tokens included.
    num_slots : int
        Prompt and room for new tokens.
    """

    preamble_tokens: int
    packet_starts: tuple[int, ...]
    question_start: int
    prompt_positions: int
    num_slots: int


def plan_assembly(
    *,
    preamble_tokens: int,
    packet_positions: Sequence[int],
    question_tokens: int,
    max_new_tokens: int,
    max_positions: int,
) -> AssemblyPlan:
    """Lay preamble, packets (in order; repeats are fine), question and room for an answer in a row.

    Raises
    ------
    ContextOverflowError
        More positions than the model has; says how many are over.
    UsageError
        ``max_new_tokens`` below 1, or a question without tokens.

    Examples
    --------
    >>> plan = plan_assembly(preamble_tokens=3, packet_positions=[5, 2], question_tokens=4,
    ...                      max_new_tokens=6, max_positions=64)
    >>> plan.packet_starts, plan.question_start, plan.prompt_positions, plan.num_slots
    ((3, 8), 10, 14, 20)
    """
    if max_new_tokens < 1:
        raise UsageError(f"max_new_tokens is {max_new_tokens}; ask for at least 1")
    if question_tokens < 1:
        raise UsageError("the question has no tokens; ask something")
    starts = []
    position = preamble_tokens
    for count in packet_positions:
        starts.append(position)
        position += count
    prompt = position + question_tokens
    num_slots = prompt + max_new_tokens
    if num_slots > max_positions:
        raise ContextOverflowError(
            f"{len(starts)} packets, preamble, question and {max_new_tokens} new tokens need "
            f"{num_slots} positions, the model has {max_positions}: "
            f"{num_slots - max_positions} too many; pass fewer documents, a lower top-k or a "
            "smaller max_new_tokens"
        )
    return AssemblyPlan(preamble_tokens, tuple(starts), position, prompt, num_slots)
