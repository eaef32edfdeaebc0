"""Answers in the shapes of OpenAI's surface, with what is ours besides."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.api import Answer, Piece
from kvpacket_store.api.answer import AnswerToken, LikelyToken

from .event_stream import event
from .problem_responses import openai_error
from .problems import problem_of

__all__ = ["ChatChunks", "Completion", "usage_of"]

_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Completion:
    """What all parts of one answer have in common.

    Parameters
    ----------
    model : str
        As the store calls it.
    """

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return a ``chat.completion``; the last four members are ours."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": _logprobs_of(answer),
            "finish_reason": answer.decode.finish_reason,
        }
        head = {"id": self.id, "object": "chat.completion", "created": self.created}
        shape = {**head, "model": self.model, "choices": [choice], "usage": usage_of(answer)}
        return shape | _ours(answer)

    def chunk(self, choices: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
        """Return a ``chat.completion.chunk``."""
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created}
        return {**head, "model": self.model, "choices": choices, **members}


class ChatChunks:
    """The events of a streamed completion.

    A chunk a piece of text; then one with the finish reason and, where they are asked for, all log
    probabilities: tokens and pieces of text do not begin and end together. Usage comes last, where
    it is asked for, and ``[DONE]``.

    Parameters
    ----------
    completion : Completion
        Which one.
    includes_usage : bool
        Whether the usage has a chunk of its own.
    """

    def __init__(self, completion: Completion, *, includes_usage: bool) -> None:
        self._completion = completion
        self._includes_usage = includes_usage
        self._has_begun = False

    def piece(self, piece: Piece) -> bytes:
        """See `EventForm`."""
        events = b"" if self._has_begun else self._delta({"role": "assistant", "content": ""})
        self._has_begun = True
        if piece.text:
            events += self._delta({"content": piece.text})
        return events if piece.answer is None else events + self._end(piece.answer)

    def error(self, error: Exception) -> bytes:
        """See `EventForm`."""
        return event(openai_error(problem_of(error)))

    def _end(self, answer: Answer) -> bytes:
        reason, logprobs = answer.decode.finish_reason, _logprobs_of(answer)
        events = self._delta({}, finish_reason=reason, logprobs=logprobs, **_ours(answer))
        if self._includes_usage:
            usage = self._completion.chunk([], usage=usage_of(answer))
            events += event(usage)
        return events + event("[DONE]")

    def _delta(
        self,
        delta: dict[str, Any],
        *,
        finish_reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
        **members: Any,
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        if self._includes_usage:
            members["usage"] = None
        return event(self._completion.chunk([choice], **members))


def usage_of(answer: Answer) -> dict[str, Any]:
    """Return a ``usage``; soft tokens of an adapter are no prompt tokens."""
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.accepted_draft_tokens,
            "rejected_prediction_tokens": usage.rejected_draft_tokens,
        },
    }


def _ours(answer: Answer) -> dict[str, Any]:
    ours = answer.to_dict()
    return {name: ours[name] for name in ("documents", "timings_ms", "decode", "fallbacks")}


def _logprobs_of(answer: Answer) -> dict[str, Any] | None:
    if answer.logprobs is None:
        return None
    return {"content": [_token(one) for one in answer.logprobs], "refusal": None}


def _token(token: AnswerToken) -> dict[str, Any]:
    return {**_likely(token), "top_logprobs": [_likely(one) for one in token.top]}


def _likely(token: LikelyToken) -> dict[str, Any]:
    """Return a token with its bytes; null where it is a part of a character alone."""
    text = token.token
    as_bytes = None if _REPLACEMENT in text else [*text.encode()]
    return {"token": text, "logprob": token.logprob, "bytes": as_bytes}
