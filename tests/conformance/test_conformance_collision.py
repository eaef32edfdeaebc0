"""A forced hash collision is a miss through the whole engine: token ids are compared on every hit.

All packet keys are made the same. A document that cannot be told from another one is refused; what
is answered is what a store without the collision answers.
"""

from contextlib import suppress

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.errors import DocumentError, NotFoundError
from kvpacket_store.types import Document

pytestmark = pytest.mark.conformance

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea."),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 8, "ignore_eos": True}


def soft(seed):
    return Adapter.untrained(np.random.default_rng(seed).normal(0, 0.3, (50, 64)), num_tokens=4)


COLLIDING = "c" * 64


@pytest.fixture
def collide(monkeypatch):
    """A function: from now on all packets share one key."""

    def start():
        for room in ("prefill.prefiller", "api.shared_bodies"):
            monkeypatch.setattr(f"kvpacket_store.{room}.packet_key", lambda identity: COLLIDING)

    return start


def answers(store, **options):
    engine = Engine(store, **options)
    found = {}
    for document in DOCS:
        try:
            answer = engine.generate(QUESTION, documents=[document.id], **LONG)
        except NotFoundError:
            continue
        found[document.id] = answer.token_ids
    return found


def test_a_collision_between_documents_serves_no_other_text(new_store, collide):
    sound = new_store(name="sound.kvps", segment_tokens=64)
    sound.ingest(DOCS)
    expected = answers(sound)
    assert expected["rhine"] != expected["elbe"]
    collide()
    store = new_store(segment_tokens=64)
    for document in DOCS:
        with_collision(store, [document])
    found = answers(store)
    assert found
    assert all(token_ids == expected[name] for name, token_ids in found.items())


def test_a_collision_within_one_ingest_serves_no_other_text(new_store, collide):
    sound = new_store(name="sound.kvps", segment_tokens=64)
    sound.ingest(DOCS)
    expected = answers(sound)
    collide()
    store = new_store(segment_tokens=64)
    with_collision(store, DOCS)
    assert all(token_ids == expected[name] for name, token_ids in answers(store).items())


def with_collision(store, documents):
    with suppress(DocumentError):  # "in the store with other tokens"
        store.ingest(documents)


PROMPTS = ("Answer briefly.", "Answer at length, and in rhymes.")


@pytest.mark.parametrize("adapter", [None, soft(0)], ids=["no adapter", "adapter"])
def test_a_collision_of_preambles_and_headers_mixes_nothing(new_store, collide, adapter):
    sound = new_store(name="sound.kvps", segment_tokens=64, adapter=adapter)
    sound.ingest(DOCS[:1])
    expected = [answers(sound, system_prompt=prompt) for prompt in PROMPTS]
    assert expected[0] != expected[1]
    collide()
    store = new_store(segment_tokens=64, adapter=adapter)
    store.ingest(DOCS[:1])
    assert [answers(store, system_prompt=prompt) for prompt in PROMPTS] == expected
