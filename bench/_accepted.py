"""Prompts that are answered at length, and how much of what was drafted for them was accepted."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.api import Answer
from kvpacket_store.benchmarks.paragraphs import QuestionItem, example_questions
from kvpacket_store.benchmarks.scores import repetition

INSTRUCTION = "Write a detailed answer with the facts from the documents."
LOOPS = 0.3


@dataclass
class Sums:
    """What drafts gave at one temperature."""

    accepted: int = 0
    rounds: int = 0
    looping: int = 0
    answers: int = 0
    identical: bool = True
    tokens_compared: int = 0
    tokens_identical: int = 0
    bits: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def take(self, answer: Answer, full: Answer) -> None:
        """Count an answer in."""
        pairs = itertools.zip_longest(answer.token_ids, full.token_ids)
        self.tokens_identical += sum(mine == theirs for mine, theirs in pairs)
        self.tokens_compared += len(full.token_ids)
        self.identical &= answer.token_ids == full.token_ids
        self.answers += 1
        if repetition(full.token_ids) > LOOPS:
            self.looping += 1
            return
        self.accepted += answer.usage.accepted_draft_tokens
        self.rounds += answer.decode.rounds
        if answer.decode.draft_tokens_kept_share is not None:
            self.shares.append(answer.decode.draft_tokens_kept_share)
        if answer.decode.draft_bits_per_scalar is not None:
            self.bits.append(answer.decode.draft_bits_per_scalar)

    def row(self) -> dict[str, Any]:
        """Return it for the table."""
        return {
            "mean_accepted": self.accepted / self.rounds if self.rounds else None,
            "rounds": self.rounds,
            "draft_bits_per_scalar": _mean(self.bits),
            "draft_tokens_kept_share": _mean(self.shares),
            "answers": self.answers,
            "looping": self.looping,
            "identical": self.identical,
            "tokens_identical": self.tokens_identical,
            "tokens_compared": self.tokens_compared,
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def prompts_of(count: int) -> list[QuestionItem]:
    """Return one question of each article, then a second one."""
    by_article: dict[str, list[QuestionItem]] = {}
    for item in example_questions():
        by_article.setdefault(item.documents[0].id, []).append(item)
    turns = itertools.zip_longest(*by_article.values())
    return [item for turn in turns for item in turn if item is not None][:count]
