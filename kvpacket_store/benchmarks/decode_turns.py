"""Turns of decoding: the same requests one token a step, with drafts, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.api import Answer, Engine
from kvpacket_store.errors import KVPacketError

__all__ = ["AUTO", "FULL", "Cell", "Tally", "decode_turn", "tokens_per_s"]

FULL, AUTO = "full", "auto"
_INSTRUCTION = "Write a detailed answer with the facts from the documents."
_QUESTIONS = (
    "What are the documents about?",
    "Who is named, and for what?",
    "What happened first, and what after it?",
    "Which numbers are given?",
    "Which places are named?",
    "Why did it happen?",
    "How does it work?",
    "What is still disputed?",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Where decodings are compared: the prompts, and how their tokens are chosen.

    Parameters
    ----------
    documents : tuple of str
        Each request has them in another order, so prompts differ and are equally long.
    batch : int
        Requests that are decoded together.
    exactness : str
        As `GenerationOptions`.
    temperature : float
        Above 0, each turn has other seeds.
    """

    documents: tuple[str, ...]
    batch: int
    exactness: str
    temperature: float

    def requests(self, turn: int, name: str, new_tokens: int) -> list[dict[str, Any]]:
        """Return what is asked, decoded as ``name`` says: full, auto or a compressor."""
        mode = name if name in (FULL, AUTO) else "verified"
        options = {
            "decode": mode,
            "compressor": name if mode == "verified" else None,
            "exactness": self.exactness,
            "temperature": self.temperature,
            "max_new_tokens": new_tokens,
            "ignore_eos": True,
        }
        return [
            {
                "question": f"{_INSTRUCTION} {_QUESTIONS[i % len(_QUESTIONS)]}",
                "documents": self._rotated(i),
                "seed": turn * self.batch + i,
                **options,
            }
            for i in range(self.batch)
        ]

    def _rotated(self, by: int) -> list[str]:
        at = by % max(len(self.documents), 1)
        return [*self.documents[at:], *self.documents[:at]]


def decode_turn(engine: Engine, requests: Sequence[dict[str, Any]]) -> list[Answer]:
    """Answer all, together where there is more than one; what fails is raised."""
    if len(requests) == 1:
        return [engine.generate(**requests[0])]
    answers = []
    for answer in engine.generate_many(requests):
        if isinstance(answer, KVPacketError):
            raise answer
        answers.append(answer)
    return answers


def tokens_per_s(answers: Sequence[Answer]) -> float:
    """Return the tokens of all, their first ones apart, over the longest time after a first one.

    What comes before a request's first token is left out: retrieval, loading, the question, and
    what was drafted while exact K and V were on their way.
    """
    longest_ms = max(a.timings_ms.total - (a.timings_ms.first_token or 0.0) for a in answers)
    return 1e3 * sum(len(a.token_ids) - 1 for a in answers) / longest_ms


@dataclass(slots=True)
class Tally:
    """What one way to decode gave in all turns of a cell."""

    speeds: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    identical: bool = True
    tokens_compared: int = 0

    def take(self, answers: Sequence[Answer], full: Sequence[Answer], *, is_new: bool) -> None:
        """Count a turn in; tokens are counted once where every turn has the same."""
        self.speeds.append(tokens_per_s(answers))
        self.answers += answers
        for mine, theirs in zip(answers, full, strict=True):
            self.identical &= mine.token_ids == theirs.token_ids
            if is_new:
                self.tokens_compared += len(theirs.token_ids)

    @property
    def mean_accepted(self) -> float | None:
        """Draft tokens accepted a round, over all rounds; None where nothing was drafted."""
        rounds = sum(answer.decode.rounds for answer in self.answers)
        accepted = sum(answer.usage.accepted_draft_tokens for answer in self.answers)
        return accepted / rounds if rounds else None

    def mean(self, field_name: str) -> float | None:
        """Return the mean of a number that ``decode`` has; None where it has none."""
        found = [getattr(answer.decode, field_name) for answer in self.answers]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None
