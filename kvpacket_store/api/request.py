"""What a request asks, checked at the door, and the answer that it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvpacket_store.api.answer import Answer, DecodeInfo, Timings, Usage
from kvpacket_store.api.assembly import Assembled
from kvpacket_store.api.text_answer import TextAnswer
from kvpacket_store.errors import UsageError
from kvpacket_store.generate import GenerationOptions, Sampler

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


def finished_answer(
    assembled: Assembled,
    text: TextAnswer,
    options: GenerationOptions,
    sampler: Sampler,
    timings: Timings,
    finish_reason: str,
) -> Answer:
    """Put together what the caller gets."""
    usage = Usage(
        prompt_tokens=assembled.prompt_tokens,
        cached_tokens=assembled.cached_tokens,
        adapter_tokens=assembled.adapter_tokens,
        completion_tokens=len(text.token_ids),
    )
    decode = DecodeInfo(
        mode="full",
        exactness=options.exactness,
        pinned=True,
        seed=sampler.seed,
        finish_reason=finish_reason,
    )
    return Answer(
        text=text.text,
        token_ids=text.token_ids,
        documents=assembled.documents,
        usage=usage,
        timings_ms=timings,
        decode=decode,
        fallbacks=assembled.fallbacks,
    )
