"""The four arms on the same questions: full recompute, naive reuse, packets, no documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import choose_adapter
from kvpacket_store.assemble import place
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import QuestionItem, example_questions, read_questions
from kvpacket_store.benchmarks.scores import answer_nll, exact_match, f1_score, mean_kl
from kvpacket_store.models import Model, PromptFormat, SlotCache, load_model
from kvpacket_store.prefill import BodyKV, Prefiller
from kvpacket_store.text import segment_document
from kvpacket_store.types import TokenIds

__all__ = ["ARMS", "measure_quality"]

ARMS = ("full", "naive", "packet", "none")
_ANSWER_TOKENS = 24
_METRICS = ("kl", "gold_nll", "f1", "em", "ttft_ms")


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One item as token ids."""

    segments: list[TokenIds]
    question: TokenIds
    question_alone: TokenIds
    golds: list[str]
    gold_ids: list[int]


def measure_quality(
    model: str = "smollm2",
    *,
    data: Path | None = None,
    limit: int = 24,
    adapter: str | Adapter | None = None,
) -> dict[str, Any]:
    """Return means over the questions by arm; KL is to the full recompute, in nats a token."""
    loaded = load_model(model)
    soft = choose_adapter(adapter, int(loaded.embedding.weight.shape[1]))
    items = read_questions(data) if data is not None else example_questions()
    # every third example question: one an article
    chosen = items[:limit] if data is not None else items[::3][:limit]
    measured = [_Item(loaded, soft, item).measure() for item in chosen]
    arms = {arm: _means([one[arm] for one in measured]) for arm in ARMS}
    rows = [{"arm": arm, **values} for arm, values in arms.items()]
    return {
        "machine": machine(),
        "model": model,
        "adapter": None if soft.is_none else soft.name,
        "data": str(data or "examples (XQuAD, held out)"),
        "arms": arms,
        "gap_closed": _gap_closed(arms),
        "rows": rows,
    }


def _means(results: Sequence[dict[str, float]]) -> dict[str, float]:
    count = len(results)
    means = {metric: sum(r[metric] for r in results) / count for metric in _METRICS}
    return {**means, "n": count}


def _gap_closed(arms: dict[str, dict[str, float]]) -> float | None:
    """Return the share of the KL gap between naive reuse and full recompute that packets close."""
    naive = arms["naive"]["kl"]
    return 1 - arms["packet"]["kl"] / naive if naive else None


class _Item:
    """Runs all arms on one question."""

    def __init__(self, model: Model, adapter: Adapter, item: QuestionItem) -> None:
        self._model = model
        self._format = PromptFormat(model.tokenizer)
        width = adapter.hidden_size
        self._prefillers = {
            "naive": Prefiller(model, Adapter.none(width)),
            "packet": Prefiller(model, adapter),
        }
        self._prompt = self._tokens(item)

    def measure(self) -> dict[str, dict[str, float]]:
        """Return every metric by arm."""
        starts: dict[str, Callable[[], tuple[SlotCache, TokenIds]]] = {
            "full": self._joint,
            "naive": self._assembler("naive"),
            "packet": self._assembler("packet"),
            "none": self._alone,
        }
        results: dict[str, dict[str, float]] = {}
        teacher: tuple[list[int], torch.Tensor] | None = None
        for arm, start in starts.items():
            result, answer, logits = self._run(start, teacher[0] if teacher else None)
            teacher = teacher or (answer, logits)
            result["kl"] = mean_kl(teacher[1], logits)
            results[arm] = result
        return results

    def _tokens(self, item: QuestionItem) -> _Prompt:
        tokenizer = self._model.tokenizer
        segments = [
            segment.token_ids
            for document in item.documents
            for segment in segment_document(document, tokenizer, 512)
        ]
        return _Prompt(
            segments,
            self._format.question_ids(item.question),
            self._format.question_ids(item.question, has_documents=False),
            item.answers,
            list(tokenizer.tokenize(item.answers[0])),
        )

    def _room(self) -> int:
        return _ANSWER_TOKENS + len(self._prompt.gold_ids) + 2

    def _joint(self) -> tuple[SlotCache, TokenIds]:
        ids = (*self._format.preamble_ids, *sum(self._prompt.segments, ()), *self._prompt.question)
        return self._model.new_cache(len(ids) + self._room()), ids

    def _alone(self) -> tuple[SlotCache, TokenIds]:
        ids = (*self._format.preamble_ids, *self._prompt.question_alone)
        return self._model.new_cache(len(ids) + self._room()), ids

    def _assembler(self, arm: str) -> Callable[[], tuple[SlotCache, TokenIds]]:
        """Prefill the packets now; return what places them, which is what a request costs."""
        prefiller = self._prefillers[arm]
        header = prefiller.header()
        spans: list[BodyKV] = [prefiller.preamble(self._format.preamble_ids)]
        for segment in self._prompt.segments:
            spans += [header, prefiller.segment(segment)]

        def start() -> tuple[SlotCache, TokenIds]:
            total = sum(span.k.shape[2] for span in spans)
            question = self._prompt.question
            cache = self._model.new_cache(total + len(question) + self._room())
            position = 0
            for span in spans:
                place(
                    self._model,
                    cache,
                    span.k,
                    span.v,
                    kv_dtype=prefiller.kv_dtype,
                    start=position,
                )
                position += span.k.shape[2]
            cache.set_length(position)
            return cache, question

        return start

    def _run(
        self,
        start: Callable[[], tuple[SlotCache, TokenIds]],
        teacher: list[int] | None,
    ) -> tuple[dict[str, float], list[int], torch.Tensor]:
        """Run one arm; return its metrics, its own answer and its logits on the teacher's."""
        clock = time.perf_counter()
        cache, ids = start()
        last = self._model.forward(ids, cache)
        first = int(last[-1].argmax())
        ttft_ms = 1e3 * (time.perf_counter() - clock)
        prompt_slots = cache.length
        answer = self._greedy(cache, first)
        forced = teacher if teacher is not None else answer
        cache.set_length(prompt_slots)
        logits = self._forced(cache, last, forced)
        cache.set_length(prompt_slots)
        gold = self._forced(cache, last, self._prompt.gold_ids)
        text = self._model.tokenizer.detokenize(answer)
        metrics = {
            "gold_nll": answer_nll(gold, self._prompt.gold_ids),
            "f1": f1_score(text, self._prompt.golds),
            "em": exact_match(text, self._prompt.golds),
            "ttft_ms": ttft_ms,
        }
        return metrics, answer, logits

    def _greedy(self, cache: SlotCache, first: int) -> list[int]:
        """Decode greedily; an answer that is nothing but its end keeps that token."""
        answer = [first]
        while len(answer) < _ANSWER_TOKENS and answer[-1] not in self._model.eos_ids:
            answer.append(int(self._model.forward((answer[-1],), cache)[-1].argmax()))
        return answer

    def _forced(self, cache: SlotCache, last: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
        """Return the logits ``[n, vocab]`` that predict each of ``token_ids``."""
        if len(token_ids) == 1:
            return last[-1:]
        rows = self._model.forward(tuple(token_ids[:-1]), cache, keep_logits=len(token_ids) - 1)
        return torch.cat([last[-1:], rows])
