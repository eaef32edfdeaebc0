"""Run one item through its arms: what each answers, and how far it is from the full recompute."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.benchmarks.scores import (
    answer_nll,
    exact_match,
    f1_score,
    mean_kl,
    overlap,
    repetition,
)
from kvpacket_store.models import Model, SlotCache, attending, raise_if_cancelled
from kvpacket_store.quality.arm import Ready, Start
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.prompt import PromptTokens, tokenize_item

__all__ = ["Heard", "ItemResult", "hear", "run_item", "scored"]

ItemResult: TypeAlias = dict[str, dict[str, Any]]
"""By arm: the metrics of one item, plain values."""

_LOOPS = 0.3


@dataclass(frozen=True, slots=True)
class Heard:
    """What a prompt in slots gives.

    Parameters
    ----------
    answer : list of int
        Its own greedy answer, the end token with it where it came.
    on_answer : float [n, vocab]
        Logits at the tokens of the full recompute's answer.
    on_gold : float [m, vocab]
        Logits at the tokens of the gold answer.
    ttft_ms : float
        From the request to the first token.
    ready : Ready
        What was counted.
    """

    answer: list[int]
    on_answer: torch.Tensor
    on_gold: torch.Tensor
    ttft_ms: float
    ready: Ready


def run_item(
    arms: Arms,
    names: Sequence[str],
    item: QuestionItem,
    *,
    answer_tokens: int,
    segment_tokens: int = 512,
) -> ItemResult:
    """Return every metric by arm; ``full`` is the first of ``names``.

    Raises
    ------
    ContextOverflowError
        The item is too long for the model.
    """
    model = arms.model
    prompt = tokenize_item(model, item, answer_tokens=answer_tokens, segment_tokens=segment_tokens)
    teacher: Heard | None = None
    results: ItemResult = {}
    for name in names:
        raise_if_cancelled()
        start = arms.start(name, prompt)
        heard = hear(model, prompt, start, None if teacher is None else teacher.answer)
        teacher = teacher or heard
        results[name] = scored(model, item, prompt, heard, teacher)
    return results


def hear(
    model: Model, prompt: PromptTokens, start: Start, teacher_answer: list[int] | None
) -> Heard:
    """Time the first token; decode greedily; then go over the teacher's and the gold answer."""
    clock = time.perf_counter()
    ready = start()
    with attending(ready.rule):
        cache = ready.cache
        last = model.forward(ready.input_ids, cache)
        first = int(last[-1].argmax())
        ttft_ms = 1e3 * (time.perf_counter() - clock)
        slots = cache.length
        answer = _greedy(_step(model, ready), first, prompt.room_tokens - 1, model.eos_ids)
        forced = answer if teacher_answer is None else teacher_answer
        cache.set_length(slots)
        on_answer = _forced(model, cache, last, forced)
        cache.set_length(slots)
        on_gold = _forced(model, cache, last, prompt.gold)
    return Heard(answer, on_answer, on_gold, ttft_ms, ready)


def scored(
    model: Model, item: QuestionItem, prompt: PromptTokens, heard: Heard, teacher: Heard
) -> dict[str, Any]:
    """Return one arm's metrics on one item."""
    answer = heard.answer
    ended = answer[-1] in model.eos_ids
    said = answer[:-1] if ended else answer
    text = model.tokenizer.detokenize(said)
    nll = answer_nll(heard.on_gold, list(prompt.gold))
    common, found, gold = overlap(text, item.answers)
    return {
        "kl": mean_kl(teacher.on_answer, heard.on_answer),
        "gold_nll": nll,
        "gold_nll_answer": nll * len(prompt.gold),
        "f1": f1_score(text, item.answers),
        "em": exact_match(text, item.answers),
        "overlap": [common, found, gold],
        "empty": not text.strip(),
        "no_end": not ended,
        "repeats": repetition(said) > _LOOPS,
        "ttft_ms": heard.ttft_ms,
        "flops": heard.ready.flops,
        "recomputed_tokens": heard.ready.recomputed_tokens,
        "context_tokens": len(prompt.document_ids),
        "answer": text,
    }


def _step(model: Model, ready: Ready) -> Callable[[int], torch.Tensor]:
    """Return what appends a token and gives the next logits: the fast way, unless a rule holds."""
    if ready.rule is None:
        return model.row_step(ready.cache)
    return lambda token_id: model.forward((token_id,), ready.cache)[-1]


def _greedy(
    step: Callable[[int], torch.Tensor], first: int, limit: int, eos_ids: Container[int]
) -> list[int]:
    """Decode greedily; an answer that is nothing but its end keeps that token."""
    answer = [first]
    while len(answer) < limit and answer[-1] not in eos_ids:
        answer.append(int(step(answer[-1]).argmax()))
    return answer


def _forced(
    model: Model, cache: SlotCache, last: torch.Tensor, token_ids: Sequence[int]
) -> torch.Tensor:
    """Return the logits ``[n, vocab]`` that predict each of ``token_ids``."""
    if len(token_ids) == 1:
        return last[-1:]
    rows = model.forward(tuple(token_ids[:-1]), cache, keep_logits=len(token_ids) - 1)
    return torch.cat([last[-1:], rows])
