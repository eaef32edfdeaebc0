"""Every kind of task asks for something that is in the documents."""

import random
import re

import pytest

from kvpacket_store.text import sentence_spans
from kvpacket_store.training.planted import plant_needle, planted_records
from kvpacket_store.training.tasks import TASK_KINDS, Passage, make_task

PASSAGES = [
    Passage("Rhine", "Rhine\nThe Rhine is 1,233 km long. It rises near Chur in the Swiss Alps."),
    Passage("", "Elbe\nThe Elbe flows through Dresden. It ends in the North Sea near Cuxhaven."),
    Passage("", "no names here, and nothing that could be told apart by a capital"),
]


def tasks(kind, passages=PASSAGES, count=60):
    made = [make_task(kind, passages, random.Random(seed)) for seed in range(count)]
    return [task for task in made if task is not None]


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_every_kind_gives_tasks_in_varied_wordings(kind):
    made = tasks(kind)
    assert len(made) > 40
    assert len({task.question for task in made}) >= 6
    assert {task.kind for task in made} == {kind}
    assert not any("{" in task.question for task in made)


def test_quoted_words_stand_in_a_passage():
    for task in tasks("quote"):
        (phrase,) = re.findall('"(.*)"', task.question)
        assert any(phrase in " ".join(passage.text.split()) for passage in PASSAGES)


def test_what_is_to_be_found_is_a_name_or_words_of_one_passage():
    for task in tasks("locate", PASSAGES[:2]):
        found = re.findall('"(.*)"', task.question) or [
            name for name in ("Chur", "Swiss Alps", "Dresden", "North Sea", "Cuxhaven", "Rhine",
                              "Elbe") if name in task.question
        ]  # fmt: skip
        assert found, task.question


def test_two_different_passages_are_compared():
    for task in tasks("compare"):
        named = [passage.topic in task.question for passage in PASSAGES]
        assert sum(named) >= 2
    assert tasks("compare", PASSAGES[:1]) == []
    assert tasks("compare", [PASSAGES[0]] * 2) == []


def test_numbers_are_asked_for_only_where_there_are_some():
    assert any("number" in task.question for task in tasks("list", PASSAGES[:1]))
    assert not any("every number" in task.question for task in tasks("list", PASSAGES[1:2]))


def test_every_text_has_a_topic():
    assert [passage.topic for passage in PASSAGES] == [
        "Rhine",
        "Elbe",
        '"no names here, and nothing"',
    ]


def test_the_same_seed_gives_the_same_task():
    assert tasks("quote") == tasks("quote")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_asked_of_records_is_in_them(seed):
    document, asked = planted_records(random.Random(seed), 0, questions=2)
    assert 4 <= len(document.text.splitlines()) <= 16
    assert len(asked) == 2
    for task in asked:
        assert task.kind == "lookup"
        assert task.needs in document.text.splitlines()


@pytest.mark.parametrize("seed", range(20))
def test_a_needle_is_one_more_sentence(seed):
    text = "One. Two is here. Three."
    ends = [end for _, end in sentence_spans(text)]
    planted, task = plant_needle(text, ends, random.Random(seed))
    assert task.needs in planted
    assert " ".join(planted.replace(task.needs, "").split()) == text
    assert task.question.endswith("?")
