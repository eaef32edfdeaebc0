"""Generated lives: a document a person, and questions with one answer, or over two documents."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.quality.datasets.dataset import HELD_OUT, DataOptions, DataSet
from kvpacket_store.quality.datasets.generated import (
    FIRST_NAMES,
    LAST_NAMES,
    TOWNS,
    sentences_for,
)
from kvpacket_store.types import Document

__all__ = ["biographies", "two_hop"]

_SOURCE, _LICENCE = "generated: templates of this package", "Apache-2.0"
_PACKETS = 5
_TRADES = [
    "clockmaker",
    "botanist",
    "cartographer",
    "glassblower",
    "surveyor",
    "bookbinder",
    "shipwright",
    "astronomer",
    "beekeeper",
    "organist",
    "printer",
    "geologist",
]
_DRINKS = ["cider", "cocoa", "barley-tea", "buttermilk", "elderflower-cordial", "coffee"]
_FACTS = {
    "born_in": "{name} was born in {born_in} in {year}.",
    "trade": "{first} worked as a {trade} for most of a long life.",
    "drink": "Friends remember that {first} drank nothing but {drink}.",
    "teacher": "{first} learned the trade from {teacher}.",
    "died_in": "{first} died in {died_in}, and is buried there.",
}
_QUESTIONS = {
    "born_in": "In which town was {name} born?",
    "year": "In which year was {name} born?",
    "trade": "What did {name} work as?",
    "drink": "What did {name} drink?",
    "teacher": "Who taught {name} the trade?",
    "died_in": "In which town did {name} die?",
}


@dataclass(frozen=True, slots=True)
class _Person:
    name: str
    facts: dict[str, str]

    def document(self, tokens: int | None, chance: random.Random) -> Document:
        """Return a life; longer where more tokens are wanted."""
        values = {"name": self.name, "first": self.name.split()[0], **self.facts}
        told = [text.format(**values) for text in _FACTS.values()]
        opening, rest = told[0], told[1:]
        if tokens is not None:
            rest += sentences_for(tokens, chance, without_tokens=80)
        chance.shuffle(rest)
        return Document(self.name, " ".join([opening, *rest]))


def _people(count: int, chance: random.Random) -> list[_Person]:
    """Return persons with different names; each but the first was taught by the one before."""
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    chosen = chance.sample(names, count + 1)
    return [
        _Person(
            name,
            {
                "born_in": chance.choice(TOWNS),
                "died_in": chance.choice(TOWNS),
                "year": str(chance.randint(1820, 1960)),
                "trade": chance.choice(_TRADES),
                "drink": chance.choice(_DRINKS).replace("-", " "),
                "teacher": teacher,
            },
        )
        for teacher, name in itertools.pairwise(chosen)
    ]


def _shuffled(people: list[_Person], options: DataOptions, chance: random.Random) -> list[Document]:
    documents = [person.document(options.document_tokens, chance) for person in people]
    chance.shuffle(documents)
    return documents


def biographies(options: DataOptions) -> DataSet:
    """Return questions about one fact of one of several lives."""
    items = []
    for index in range(options.limit):
        chance = options.random("biographies", index)
        people = _people(options.packets or _PACKETS, chance)
        person, fact = chance.choice(people), chance.choice(list(_QUESTIONS))
        question = _QUESTIONS[fact].format(name=person.name)
        documents = _shuffled(people, options, chance)
        items.append(QuestionItem(question, [person.facts[fact]], documents))
    return DataSet("biographies", HELD_OUT, _SOURCE, _LICENCE, items)


def two_hop(options: DataOptions) -> DataSet:
    """Return questions whose answer is in one life, and whose way leads over another."""
    items = []
    for index in range(options.limit):
        chance = options.random("two-hop", index)
        people = _people(max(2, options.packets or _PACKETS), chance)
        at = chance.randrange(1, len(people))
        pupil, teacher = people[at], people[at - 1]
        fact = chance.choice(["born_in", "drink", "trade"])
        question = {
            "born_in": f"In which town was the teacher of {pupil.name} born?",
            "drink": f"What did the teacher of {pupil.name} drink?",
            "trade": f"What did the teacher of {pupil.name} work as?",
        }[fact]
        documents = _shuffled(people, options, chance)
        items.append(QuestionItem(question, [teacher.facts[fact]], documents))
    return DataSet("two-hop", HELD_OUT, _SOURCE, _LICENCE, items)
