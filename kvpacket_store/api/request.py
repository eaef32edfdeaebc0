"""What a request asks, checked at the door, and the answer that it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvpacket_store.api.answer import Answer, Timings, Usage
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.text_answer import TextAnswer
from kvpacket_store.errors import UsageError
from kvpacket_store.generate import GenerationOptions

__all__ = ["checked_options", "finish_reason", "finished_answer"]


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


def finished_answer(begun: Begun, text: TextAnswer, timings: Timings) -> Answer:
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
    )
