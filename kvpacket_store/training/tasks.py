"""Questions that any text can be asked without labels: the teacher's answer is the target.

Quote, locate, list, summarise, compare, in varied wordings. What is looked up is planted
(`planted`). A task only has to be one that the teacher answers by reading the documents: whether
it answers well matters little, for the student is to answer as it does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvpacket_store.text import sentence_spans

__all__ = ["TASK_KINDS", "Passage", "Task", "make_task"]

_NAME = re.compile(r"[^\W\d_a-z][\w’'-]+(?: (?:(?:of|the|de|von|van) )?[^\W\d_a-z][\w’'-]+)*")
_NUMBER = re.compile(r"\d[\d,.]*")
_TOPIC_CHARS = 60
_QUOTED_WORDS = 5

_QUOTE = (
    'Quote the sentence that contains "{phrase}".',
    'Which sentence says "{phrase}"? Repeat it word for word.',
    'Copy the passage with the words "{phrase}".',
    'How does the text go on after "{phrase}"?',
)
_LOCATE = (
    "Which document mentions {name}?",
    "Where is {name} mentioned, and what is said there?",
    "What do the documents say about {name}?",
    'In which document do the words "{phrase}" stand?',
)
_LIST_NAMES = (
    "List all names in the document about {topic}.",
    "Which people and places does the text about {topic} mention?",
    "List the names that the documents mention.",
)
_LIST_NUMBERS = (
    "Which numbers and years are in the document about {topic}?",
    "List every number in the text about {topic}, and what it stands for.",
)
_LIST_TITLES = (
    "What are the documents about? List their subjects.",
    "List the title or subject of each document.",
    "How many documents are there, and what is each about?",
)
_SUMMARISE = (
    "Summarise the document about {topic} in one sentence.",
    "What is {topic}?",
    "What is the most important fact about {topic}?",
    "Explain {topic} in your own words.",
)
_COMPARE = (
    "Compare {topic} and {other}.",
    "What do {topic} and {other} have in common?",
    "How does {topic} differ from {other}?",
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A segment as text, and what its document calls itself (or an empty title)."""

    title: str
    text: str

    @property
    def topic(self) -> str:
        """What a question can call it: title, short first line, first name or first words.

        Examples
        --------
        >>> Passage("", "It is said that the Rhine rises here, and ends in the sea.").topic
        'Rhine'
        """
        first_line = self.text.strip().partition("\n")[0]
        heading = self.title or (first_line if len(first_line) < len(self.text.strip()) else "")
        if heading and len(heading) <= _TOPIC_CHARS:
            return heading
        names = _names(self.text)
        return names[0] if names else f'"{" ".join(self.text.split()[:_QUOTED_WORDS])}"'


@dataclass(frozen=True, slots=True)
class Task:
    """A question, which kind of task it is, and the text without which it has no answer."""

    kind: str
    question: str
    needs: str = ""


def make_task(kind: str, passages: Sequence[Passage], rng: random.Random) -> Task | None:
    """Return a question of that kind on the passages, or None where they give none.

    Parameters
    ----------
    kind : str
        One of ``TASK_KINDS``.
    passages : sequence of Passage
        What the sample's packets hold.
    rng : random.Random
        Chooses passage and wording.

    Examples
    --------
    >>> passages = [Passage("Rhine", "The Rhine rises in the Alps."), Passage("Elbe", "A river.")]
    >>> make_task("compare", passages, random.Random(0)).question
    'Compare Elbe and Rhine.'
    """
    question = _MAKERS[kind](passages, rng)
    return None if question is None else Task(kind, question)


def _quote(passages: Sequence[Passage], rng: random.Random) -> str | None:
    phrase = _phrase(rng.choice(passages), rng)
    return None if phrase is None else rng.choice(_QUOTE).format(phrase=phrase)


def _locate(passages: Sequence[Passage], rng: random.Random) -> str | None:
    """Ask for a name that stands in one passage alone, where there is one."""
    passage = rng.choice(passages)
    others = [other.text for other in passages if other is not passage]
    names = _names(passage.text)
    rare = [name for name in names if not any(name in text for text in others)] or names
    phrase = _phrase(passage, rng)
    if not rare:
        return None if phrase is None else _LOCATE[-1].format(phrase=phrase)
    wordings = _LOCATE if phrase is not None else _LOCATE[:-1]
    return rng.choice(wordings).format(name=rng.choice(rare), phrase=phrase)


def _list(passages: Sequence[Passage], rng: random.Random) -> str | None:
    passage = rng.choice(passages)
    wordings = list(_LIST_TITLES)
    if _names(passage.text):
        wordings += _LIST_NAMES
    if _NUMBER.search(passage.text):
        wordings += _LIST_NUMBERS
    return rng.choice(wordings).format(topic=passage.topic)


def _summarise(passages: Sequence[Passage], rng: random.Random) -> str | None:
    return rng.choice(_SUMMARISE).format(topic=rng.choice(passages).topic)


def _compare(passages: Sequence[Passage], rng: random.Random) -> str | None:
    topics = list(dict.fromkeys(passage.topic for passage in passages))
    if len(topics) < 2:
        return None
    first, second = rng.sample(topics, 2)
    return rng.choice(_COMPARE).format(topic=first, other=second)


_MAKERS: dict[str, Callable[[Sequence[Passage], random.Random], str | None]] = {
    "quote": _quote,
    "locate": _locate,
    "list": _list,
    "summarise": _summarise,
    "compare": _compare,
}
TASK_KINDS = tuple(_MAKERS)


def _phrase(passage: Passage, rng: random.Random) -> str | None:
    """Return a few words in a row of one sentence."""
    spans = [(s, e) for s, e in sentence_spans(passage.text) if len(passage.text[s:e].split()) > 3]
    if not spans:
        return None
    start, end = rng.choice(spans)
    words = list(re.finditer(r"\S+", passage.text[start:end]))
    first = rng.randrange(max(1, len(words) - _QUOTED_WORDS))
    last = min(first + _QUOTED_WORDS, len(words)) - 1
    return " ".join(word[0] for word in words[first : last + 1])


def _names(text: str) -> list[str]:
    """Return capitalised words that do not only begin a sentence or line, each once, in order."""
    starts = {start for start, _ in sentence_spans(text)} | {0}
    starts |= {line.end() for line in re.finditer(r"\n\W*", text)}
    found = [m for m in _NAME.finditer(text) if m.start() not in starts or " " in m[0]]
    return list(dict.fromkeys(m[0] for m in found if len(m[0]) <= _TOPIC_CHARS))
