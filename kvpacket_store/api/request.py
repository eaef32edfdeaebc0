"""What a request asks, checked at the door, and the answer that it gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvpacket_store.api.answer import Answer, AnswerToken, LikelyToken, Timings, Usage
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.selection import DocumentItem, Query
from kvpacket_store.api.store import DEFAULT_NAMESPACE
from kvpacket_store.api.text_answer import TextAnswer
from kvpacket_store.errors import UsageError
from kvpacket_store.generate import Answering, GenerationOptions
from kvpacket_store.text import Tokenizer

__all__ = ["Request", "checked_options", "finish_reason", "finished_answer", "new_request"]


@dataclass(slots=True, eq=False)
class Request:
    """One request from its arrival to its end; `new_request` makes it.

    Parameters
    ----------
    query : Query
        The question, and which documents are to answer it.
    options : GenerationOptions
        How to answer.
    cancel : threading.Event
        Set to stop within one step.
    provisional : bool
        Drafted text is wanted too.
    owner : str
        Whose it is, where requests wait: owners have turns.
    timings : Timings
        Filled in while it is answered.
    clock : float
        When it arrived, ``time.perf_counter()``.
    """

    query: Query
    options: GenerationOptions
    cancel: threading.Event = field(default_factory=threading.Event)
    provisional: bool = False
    owner: str = ""
    timings: Timings = field(default_factory=Timings)
    clock: float = field(default_factory=time.perf_counter)

    def elapsed_ms(self) -> float:
        """Return the time since it arrived."""
        return 1e3 * (time.perf_counter() - self.clock)


def new_request(
    question: str,
    documents: Iterable[DocumentItem] | None = None,
    *,
    top_k: int | None = None,
    where: Mapping[str, Any] | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    history: Sequence[tuple[str, str]] = (),
    system_prompt: str | None = None,
    keep: bool = False,
    cancel: threading.Event | None = None,
    provisional: bool = False,
    **options: Any,
) -> Request:
    """Check at the door what `Engine.stream` takes, and start the clock.

    Raises
    ------
    UsageError
        The question is empty, or an option is unknown or out of its range.
    """
    query = Query(question, documents, top_k, where, namespace, history, system_prompt, keep)
    chosen = checked_options(options)
    return Request(query, chosen, cancel or threading.Event(), provisional)


def checked_options(options: Mapping[str, Any]) -> GenerationOptions:
    """Check options at the door; an unknown name is the caller's mistake, not a TypeError."""
    unknown = set(options) - set(GenerationOptions.__dataclass_fields__)
    if unknown:
        raise UsageError(f"unknown options: {', '.join(sorted(unknown))}")
    chosen = dict(options)
    if isinstance(chosen.get("stop"), str):
        chosen["stop"] = (chosen["stop"],)
    elif "stop" in chosen:
        stops = chosen["stop"] or ()
        chosen["stop"] = tuple(stops) if isinstance(stops, Iterable) else (stops,)
    return GenerationOptions(**chosen)


def finish_reason(text: TextAnswer, options: GenerationOptions) -> str:
    """Return ``stop`` where the answer ended by itself, ``length`` where it was cut."""
    if text.stopped or len(text.token_ids) < options.max_new_tokens:
        return "stop"
    return "length"


def finished_answer(
    begun: Begun, text: TextAnswer, timings: Timings, tokenizer: Tokenizer
) -> Answer:
    """Put together what the caller gets."""
    assembled = begun.assembled
    usage = Usage(
        prompt_tokens=assembled.prompt_tokens,
        cached_tokens=assembled.cached_tokens,
        adapter_tokens=assembled.adapter_tokens,
        completion_tokens=len(text.token_ids),
        accepted_draft_tokens=begun.counts.accepted,
        rejected_draft_tokens=begun.counts.rejected,
    )
    return Answer(
        text=text.text,
        token_ids=text.token_ids,
        documents=assembled.documents,
        usage=usage,
        timings_ms=timings,
        decode=begun.info(finish_reason(text, begun.answering.options)),
        fallbacks=begun.fallbacks(),
        logprobs=_logprobs(begun.answering, text, tokenizer),
    )


def _logprobs(
    answering: Answering, text: TextAnswer, tokenizer: Tokenizer
) -> list[AnswerToken] | None:
    if answering.options.logprobs is None:
        return None
    found = []
    for place in range(len(text.token_ids)):
        said = answering.logprobs[place]
        top = [LikelyToken(i, tokenizer.detokenize([i]), logprob) for i, logprob in said.top]
        token = tokenizer.detokenize([said.token_id])
        found.append(AnswerToken(said.token_id, token, said.logprob, top))
    return found
