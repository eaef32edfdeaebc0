"""An answer and where it came from; the same fields as ``kvps ask --json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.types import Report

__all__ = [
    "Answer",
    "AnswerToken",
    "DecodeInfo",
    "Fallback",
    "LikelyToken",
    "Piece",
    "Timings",
    "Usage",
    "UsedDocument",
    "UsedPacket",
]


@dataclass(frozen=True, slots=True)
class UsedPacket(Report):
    """A packet of the prompt. ``tier``: ``disk``, ``ram``, or ``prefill`` where it was made."""

    packet_key: str
    tokens: int
    tier: str
    fell_back: bool


@dataclass(frozen=True, slots=True)
class UsedDocument(Report):
    """A document of the prompt, with its retrieval score (None where it was asked for by id)."""

    id: str
    score: float | None
    packets: list[UsedPacket]


@dataclass(frozen=True, slots=True)
class Usage(Report):
    """Positions and tokens of a request.

    ``prompt_tokens`` are the positions that the question's tokens can see, soft tokens apart;
    ``cached_tokens`` those of them for which no forward pass was run in this request.
    """

    prompt_tokens: int
    cached_tokens: int
    adapter_tokens: int
    completion_tokens: int
    accepted_draft_tokens: int = 0
    rejected_draft_tokens: int = 0


@dataclass(slots=True)
class Timings(Report):
    """Where the time went, ms.

    ``load`` (reading records), ``decode`` (bytes to K,V) and ``assemble`` (rotating into slots)
    overlap; ``prefill`` is every forward before the first token. ``first_token`` and ``total`` run
    from the request.
    """

    retrieve: float = 0.0
    load: float = 0.0
    decode: float = 0.0
    assemble: float = 0.0
    prefill: float = 0.0
    first_draft: float | None = None
    first_token: float | None = None
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeInfo(Report):
    """How the answer was decoded.

    ``pinned``: the exact K,V were in memory from the start. ``rounds``: verifications; a round's
    ``mean_accepted`` does not count the target's own token. ``guarded``: rows near a tie that were
    decided again by one-token decoding.
    """

    mode: str
    exactness: str
    pinned: bool
    rounds: int = 0
    mean_accepted: float | None = None
    draft_bits_per_scalar: float | None = None
    draft_tokens_kept_share: float | None = None
    guarded: int = 0
    seed: int | None = None
    finish_reason: str = "length"


@dataclass(frozen=True, slots=True)
class LikelyToken(Report):
    """A token and the natural logarithm of its probability."""

    token_id: int
    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class AnswerToken(LikelyToken):
    """A token of the answer, and the likeliest ones in its place, the likeliest first.

    Probabilities are the model's own, before temperature, penalty and cut-offs.
    """

    top: list[LikelyToken]


@dataclass(frozen=True, slots=True)
class Fallback(Report):
    """A packet that could not be used and was prefilled again from its token ids."""

    packet_key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    text: str
    token_ids: list[int]
    documents: list[UsedDocument]
    usage: Usage
    timings_ms: Timings
    decode: DecodeInfo
    fallbacks: list[Fallback] = field(default_factory=list)
    logprobs: list[AnswerToken] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of ``kvps ask``: ``text`` is called ``answer`` there."""
        return {
            "answer": self.text,
            "token_ids": self.token_ids,
            "documents": [document.to_dict() for document in self.documents],
            "usage": self.usage.to_dict(),
            "timings_ms": self.timings_ms.to_dict(),
            "decode": self.decode.to_dict(),
            "fallbacks": [fallback.to_dict() for fallback in self.fallbacks],
            "logprobs": self.logprobs and [token.to_dict() for token in self.logprobs],
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a streamed answer: whole characters only; the last has the ``answer``.

    ``provisional``: what a draft proposes after the final text so far. The final text that follows
    may differ, and says it again where it does not.
    """

    text: str
    answer: Answer | None = None
    provisional: bool = False
