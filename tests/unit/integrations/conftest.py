"""A store of rivers and gases, on the plain tiny model."""

import pytest

from kvpacket_store.api import Engine
from kvpacket_store.types import Document


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def engine(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(
        [
            Document("rhine", "The Rhine rises in the Alps.", {"kind": "river"}),
            Document("elbe", "The Elbe rises in Bohemia.", {"kind": "river"}),
            Document("oxygen", "Oxygen is a gas. Plants give it off.", {"kind": "gas"}),
        ]
    )
    return Engine(store)


@pytest.fixture
def empty_engine(new_store):
    return Engine(new_store(segment_tokens=64))
