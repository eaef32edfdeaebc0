"""Finding one thing: a needle in filler, a value by its key. Generated, so nothing is known."""

from __future__ import annotations

import json
import random
import uuid

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.quality.datasets.dataset import HELD_OUT, IN_DOMAIN, DataOptions, DataSet
from kvpacket_store.quality.datasets.generated import TOWNS, sentences_for
from kvpacket_store.types import Document

__all__ = ["key_values", "needles"]

_SOURCE, _LICENCE = "generated: templates of this package", "Apache-2.0"
_PACKETS = 5
_NEEDLE_TOKENS = 160
_RECORD_TOKENS = 48  # two UUIDs as JSON, in a tokenizer of ordinary text
_RECORDS = 6
_LOCKS = ["safe", "boathouse", "cellar", "workshop", "archive", "greenhouse", "vault", "gatehouse"]


def needles(options: DataOptions) -> DataSet:
    """Return questions for a number that stands in one sentence of one document.

    The other documents have needles of other places in them, so the place has to be understood.
    """
    items = []
    for index in range(options.limit):
        chance = options.random("needles", index)
        count = options.packets or _PACKETS
        places = [f"the {lock} in {town}" for lock in _LOCKS for town in TOWNS]
        codes = {place: chance.randint(1000, 9999) for place in chance.sample(places, count)}
        documents = [
            _hidden(f"The code of {place} is {code}.", str(i), options, chance)
            for i, (place, code) in enumerate(codes.items())
        ]
        place = chance.choice(list(codes))
        items.append(QuestionItem(f"What is the code of {place}?", [str(codes[place])], documents))
    return DataSet("needles", HELD_OUT, _SOURCE, _LICENCE, items)


def _hidden(needle: str, name: str, options: DataOptions, chance: random.Random) -> Document:
    tokens = options.document_tokens or _NEEDLE_TOKENS
    sentences = sentences_for(tokens, chance, without_tokens=12)
    sentences.insert(chance.randint(0, len(sentences)), needle)
    return Document(name, " ".join(sentences))


def key_values(options: DataOptions) -> DataSet:
    """Return questions for the value of a key among pairs of UUIDs, spread over documents.

    Form of Liu et al. 2023 (Lost in the Middle, arXiv:2307.03172); the pairs are our own.
    In-domain: adapters train on records of keys and values.
    """
    records = max(1, (options.document_tokens or _RECORDS * _RECORD_TOKENS) // _RECORD_TOKENS)
    items = []
    for index in range(options.limit):
        chance = options.random("key-value", index)
        count = options.packets or _PACKETS
        pairs = [(_uuid(chance), _uuid(chance)) for _ in range(records * count)]
        documents = [
            Document(str(i), json.dumps(dict(pairs[i * records : (i + 1) * records]), indent=0))
            for i in range(count)
        ]
        key, value = chance.choice(pairs)
        items.append(QuestionItem(f'What is the value of the key "{key}"?', [value], documents))
    return DataSet("key-value", IN_DOMAIN, _SOURCE, _LICENCE, items)


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))
