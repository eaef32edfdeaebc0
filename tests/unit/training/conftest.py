"""Short documents, and options of a run that takes a second on a tiny model."""

import pytest

from kvpacket_store.text import QuestionItem
from kvpacket_store.training import Corpus, TrainOptions
from kvpacket_store.types import Document

RIVERS = ("Rhine", "Elbe", "Danube", "Oder", "Weser", "Main", "Mosel", "Neckar", "Isar", "Spree")


def river(name, number):
    text = f"The {name} is {number} km long. In the north it meets the old town of {name}burg."
    return Document(name.lower(), text, {"title": name})


@pytest.fixture
def documents():
    return [river(name, 100 + 7 * i) for i, name in enumerate(RIVERS * 2)][: len(RIVERS)]


@pytest.fixture
def corpus(documents):
    items = [
        QuestionItem(f"How long is the {d.metadata['title']}?", [str(100 + 7 * i)], [d])
        for i, d in enumerate(documents)
    ]
    return Corpus(documents, items, [], [])


@pytest.fixture
def tiny_options():
    """A function: what differs → options."""

    def make(**given):
        small = {
            "header": "soft",
            "num_tokens": 2,
            "steps": 4,
            "batch": 2,
            "samples": 6,
            "validation_samples": 2,
            "questions": 2,
            "max_packets": 3,
            "sample_tokens": 900,
            "answer_tokens": 6,
            "top_k": 16,
            "validate_every": 2,
        }
        return TrainOptions(**{**small, **given})

    return make
