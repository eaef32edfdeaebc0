"""Training samples: packets in varied number, order and length, and questions on them.

A sample is made from its number and the run's seed alone, so that it is the same in every process,
whatever was made before it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from kvpacket_store.errors import DocumentError, UsageError
from kvpacket_store.models import HFTokenizer, PromptFormat
from kvpacket_store.text import QuestionItem, segment_document, sentence_spans
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.planted import plant_needle, planted_records
from kvpacket_store.training.sources import Pool
from kvpacket_store.training.tasks import TASK_KINDS, Passage, Task, make_task
from kvpacket_store.types import Document, Segment, TokenIds

__all__ = ["Sample", "Sampler"]

_SEGMENT_TOKENS = (64, 128, 256, 512)
_QUESTION_SHARE = 0.6  # of samples that ask questions of a set, where there is one
_PLANTED_SHARE = 0.35
_TRIES = 8
_QUESTION_TOKENS = 48  # usually enough; longer ones are left out where room is short


@dataclass(frozen=True, slots=True)
class Sample:
    """Packets and questions as token ids; each question is asked alone of all packets.

    ``kinds`` says what each question is: one of ``TASK_KINDS``, ``lookup`` or ``question``.
    """

    preamble: TokenIds
    segments: tuple[TokenIds, ...]
    questions: tuple[TokenIds, ...]
    kinds: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Hex SHA-256 of what the teacher reads."""
        parts = (self.preamble, self.segments, self.questions)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True)
class _Draft:
    """A sample on its way: documents with what is asked of them in particular."""

    documents: list[Document]
    tasks: list[Task]
    answers: list[str]


class Sampler:
    """Makes samples from one side of the split.

    Parameters
    ----------
    pool : Pool
        Documents and questions.
    tokenizer : HFTokenizer
        The model's.
    options : TrainOptions
        Limits and seed.
    side : str
        ``"train"`` or ``"validation"``: other samples for the same numbers.
    """

    def __init__(
        self, pool: Pool, tokenizer: HFTokenizer, options: TrainOptions, side: str
    ) -> None:
        self._pool = pool
        self._tokenizer = tokenizer
        self._options = options
        self._side = side
        self._format = PromptFormat(tokenizer)

    def sample(self, number: int) -> Sample:
        """Return the sample of that number.

        Raises
        ------
        UsageError
            Nothing in the pool fits into a sample: its segments are too long for it.
        """
        for attempt in range(_TRIES):
            rng = random.Random(f"{self._options.seed}/{self._side}/{number}/{attempt}")  # noqa: S311 — no secret
            made = self._make(rng)
            if made is not None:
                return made
        raise UsageError(
            "no training sample could be made: documents have too little text, or a sample of "
            f"{self._options.sample_tokens} tokens is too short for them; raise sample_tokens"
        )

    def _make(self, rng: random.Random) -> Sample | None:
        draft = self._draft(rng)
        chosen = list(self._fitting(draft, rng))
        if not chosen:
            return None
        rng.shuffle(chosen)
        passages = [Passage(_title(document), segment.text) for document, segment in chosen]
        segments = tuple(segment.token_ids for _, segment in chosen)
        asked = list(self._asked(self._tasks(draft, passages, rng), segments))
        if not asked:
            return None
        return Sample(
            preamble=self._format.preamble_ids,
            segments=segments,
            questions=tuple(ids for _, ids in asked),
            kinds=tuple(kind for kind, _ in asked),
        )

    def _draft(self, rng: random.Random) -> _Draft:
        """Choose documents: those of some questions, planted ones, and distractors."""
        count = rng.randint(1, self._options.max_packets)
        draft = _Draft([], [], [])
        if self._pool.questions and rng.random() < _QUESTION_SHARE:
            for item in rng.sample(self._pool.questions, min(count, len(self._pool.questions))):
                self._take(item, draft, count, rng)
        elif rng.random() < _PLANTED_SHARE:
            document, tasks = planted_records(rng, len(draft.documents), questions=2)
            draft.documents.append(document)
            draft.tasks += tasks
            draft.answers.append(tasks[0].needs.lower())
        missing = count - len(draft.documents)
        others = rng.sample(self._pool.documents, min(max(missing, 0), len(self._pool.documents)))
        if others and rng.random() < _PLANTED_SHARE:
            others[0] = self._with_needle(others[0], draft, rng)
        here = {document.text for document in draft.documents}
        draft.documents += [other for other in others if other.text not in here]
        return draft

    def _take(self, item: QuestionItem, draft: _Draft, count: int, rng: random.Random) -> None:
        """Add a question and its documents, those that answer it first, while there is room."""
        answers = [answer.lower() for answer in item.answers if answer]
        documents = rng.sample(item.documents, len(item.documents))
        documents.sort(key=lambda d: not any(answer in d.text.lower() for answer in answers))
        here = {document.text for document in draft.documents}
        new = [document for document in documents if document.text not in here]
        room = count - len(draft.documents)
        if new and room <= 0:
            return
        draft.documents += new[: rng.randint(1, room)] if new else []
        draft.tasks.append(Task("question", item.question))
        draft.answers += answers

    def _with_needle(self, document: Document, draft: _Draft, rng: random.Random) -> Document:
        ends = [end for _, end in sentence_spans(document.text[:2000])]
        text, task = plant_needle(document.text[:2000], ends, rng)
        draft.tasks.insert(0, task)
        draft.answers.append(task.needs.lower())
        return Document(document.id, text, document.metadata)

    def _fitting(self, draft: _Draft, rng: random.Random) -> Iterator[tuple[Document, Segment]]:
        """Yield one segment a document while there is room; one with an answer if it has any."""
        room = self._room() - self._options.questions * _QUESTION_TOKENS
        longest = rng.choice(_SEGMENT_TOKENS)
        for document in draft.documents:
            try:
                segments = segment_document(document, self._tokenizer, longest)
            except DocumentError:
                continue
            telling = [s for s in segments if any(a in s.text.lower() for a in draft.answers)]
            segment = rng.choice(telling or segments)
            needed = len(segment.token_ids) + 2 * self._options.num_tokens
            if needed <= room:
                room -= needed
                yield document, segment

    def _room(self) -> int:
        """Return the tokens that packets and questions may have."""
        options = self._options
        answers = options.questions * options.answer_tokens
        return options.sample_tokens - len(self._format.preamble_ids) - answers

    def _tasks(self, draft: _Draft, passages: list[Passage], rng: random.Random) -> list[Task]:
        """Return as many tasks as are wanted, all different, at least one of them self-made."""
        wanted = self._options.questions
        usable = [t for t in draft.tasks if any(t.needs in passage.text for passage in passages)]
        tasks = rng.sample(usable, len(usable))[: max(1, wanted - 1)]
        for _ in range(_TRIES * wanted):
            if len(tasks) >= wanted:
                break
            task = make_task(rng.choice(TASK_KINDS), passages, rng)
            if task is not None and task not in tasks:
                tasks.append(task)
        return tasks

    def _asked(
        self, tasks: list[Task], segments: tuple[TokenIds, ...]
    ) -> Iterator[tuple[str, TokenIds]]:
        """Yield kind and token ids of the questions that the sample has room for."""
        room = self._room() - sum(len(s) + 2 * self._options.num_tokens for s in segments)
        for task in tasks:
            ids = self._format.question_ids(task.question)
            if len(ids) <= room:
                room -= len(ids)
                yield task.kind, ids


def _title(document: Document) -> str:
    title = document.metadata.get("title")
    return title.strip() if isinstance(title, str) else ""
