"""Several processes ingest into one store at once, with a real (tiny) model."""

import pytest

from kvpacket_store.api import Store
from kvpacket_store.errors import NotFoundError
from kvpacket_store.types import Document

pytestmark = pytest.mark.fault

NUM_ROUNDS = 6
DOCS = [Document(f"d{i}", f"Number {i} is here.\n\nAnd number {i} has more.") for i in range(6)]


@pytest.fixture
def path(new_store):
    store = new_store(segment_tokens=32)
    store.close()
    return store.path


def finish(children):
    """Wait for the children, which say their rounds, and see them end well."""
    for child, connection in children:
        said = []
        try:
            while True:
                said.append(connection.recv())
        except EOFError:
            child.join()
        assert (child.exitcode, said[-1]) == (0, NUM_ROUNDS - 1)


def test_two_processes_ingest_the_same_documents_again_and_again(
    path, start_work, model, word_embedder
):
    """What is there can be read, at each step; in the end everything is there once."""
    children = [start_work("ingest_work.py", path, [DOCS] * NUM_ROUNDS) for _ in range(2)]
    with Store.open(path, model=model, embedder=word_embedder) as store:
        keys = [
            store.prefiller.segment_key(segment.token_ids)
            for document in DOCS
            for segment in store.segments(document)
        ]
        while any(child.is_alive() for child, _ in children):
            for key in keys:
                if store.packets.has_packet("default", key):
                    store.packets.read_record("default", key)
            for document in DOCS:
                if store.packets.has_document("default", document.id):
                    assert store.show(document.id)["text"] == document.text
        finish(children)
        assert sorted(m.packet_key for m in store.packets.iter_packets("default")) == sorted(keys)
        assert store.stats().documents == len(DOCS)
        assert store.packets.check(deep=True) == []
        assert store.ingest(DOCS).documents.unchanged == len(DOCS)


def test_two_processes_ingest_different_versions(path, start_work, model, word_embedder):
    """The last one to commit a document wins; each document is whole at any time."""
    versions = [
        [Document(d.id, f"{d.text}\n\nVersion {v} says so.") for d in DOCS] for v in range(2)
    ]
    rounds = [[versions[(i + first) % 2] for i in range(NUM_ROUNDS)] for first in range(2)]
    children = [start_work("ingest_work.py", path, batches) for batches in rounds]
    texts = {document.text for version in versions for document in version}
    with Store.open(path, model=model, embedder=word_embedder) as store:
        while any(child.is_alive() for child, _ in children):
            for document in DOCS:
                try:
                    _, records = store.packets.read_document("default", document.id)
                except NotFoundError:
                    continue
                assert len(records) == 3
                assert store.show(document.id)["text"] in texts
        finish(children)
        assert store.packets.check(deep=True) == []
