"""Facts that are planted, so that they can be looked up: records of keys and values, needles."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvpacket_store.training.tasks import Task
from kvpacket_store.types import Document

__all__ = ["plant_needle", "planted_records"]

_ADJECTIVES = (
    "amber bold calm dusty early faint golden hidden icy jolly keen lunar misty noble olive pale "
    "quiet rapid silver tidy upper velvet windy young"
)
_NOUNS = (
    "anchor bridge canyon dragon engine forest garden harbor island jungle kettle ladder meadow "
    "needle orchard piano quarry river saddle tunnel valley willow yard zephyr"
)
_NEEDLES = (
    ("The secret code of the {name} is {value}.", "What is the secret code of the {name}?"),
    ("Remember: the {name} is worth {value} crowns.", "How much is the {name} worth?"),
    ("The meeting in the {name} begins at {value}.", "When does the meeting in the {name} begin?"),
    ("One of the special numbers of the {name} is {value}.", "Which number has the {name}?"),
    ("The keeper of the {name} is called {value}.", "Who keeps the {name}?"),
)
_RECORDS = ("{key}: {value}", '"{key}": "{value}",', "{key} = {value}", "| {key} | {value} |")
_RECORD_QUESTIONS = (
    "What is the value of {key}?",
    "Which value belongs to {key}?",
    "Look up {key} and give its value.",
    "{key}?",
)


def planted_records(
    rng: random.Random, index: int, *, questions: int
) -> tuple[Document, list[Task]]:
    """Return a document of records of random keys and values, and questions for some of them.

    Parameters
    ----------
    rng : random.Random
        Draws keys, values, their number (4 to 16) and the way they are written.
    index : int
        Numbers the document among its sample's.
    questions : int
        How many at most.
    """
    make = rng.choice((_name, _hexadecimal))
    pairs = {make(rng): rng.choice((_digits, _hexadecimal, _name))(rng) for _ in range(16)}
    chosen = list(pairs.items())[: rng.randint(4, 16)]
    form = rng.choice(_RECORDS)
    text = "\n".join(form.format(key=key, value=value) for key, value in chosen)
    document = Document(f"records-{index}", text, {"title": rng.choice(("Records", "Table", ""))})
    asked = rng.sample(chosen, min(questions, len(chosen)))
    return document, [
        Task("lookup", rng.choice(_RECORD_QUESTIONS).format(key=key), form.format(key=key, value=v))
        for key, v in asked
    ]


def plant_needle(text: str, ends: Sequence[int], rng: random.Random) -> tuple[str, Task]:
    """Put a sentence with a random fact into a text; return it, and the question for the fact.

    Parameters
    ----------
    text : str
        Of a document.
    ends : sequence of int
        Offsets where a sentence may stand: behind others. It stands in front where there are none.
    rng : random.Random
        Draws fact, wording and place.
    """
    sentence, question = rng.choice(_NEEDLES)
    name = _name(rng)
    value = rng.choice((_digits, _name))(rng)
    at = rng.choice([0, *ends])
    needle = sentence.format(name=name, value=value)
    planted = f"{text[:at]} {needle} {text[at:].lstrip()}".strip()
    return planted, Task("lookup", question.format(name=name), needle)


def _name(rng: random.Random) -> str:
    return f"{rng.choice(_ADJECTIVES.split())} {rng.choice(_NOUNS.split())}"


def _digits(rng: random.Random) -> str:
    return str(rng.randint(100, 9_999_999))


def _hexadecimal(rng: random.Random) -> str:
    return f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}"
