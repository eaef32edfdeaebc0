"""SIGKILL during an ingest with a real (tiny) model: what it had filed is whole, and it resumes."""

import random
import signal
import time

import pytest

from kvpacket_store.api import Store
from kvpacket_store.types import Document

pytestmark = pytest.mark.fault

KILLS = 5  # each starts a process with torch
MANY_KILLS = 200
NUM_BATCHES = 4


def document(name, version):
    """One to four paragraphs; from version to version some stay, some change and some go."""
    rng = random.Random(f"{name} {version // 2}")
    texts = [f"{name} says {rng.randrange(4)}." for _ in range(rng.randint(1, 4))]
    return Document(name, "\n\n".join(texts), {"version": version})


BATCHES = [[document(f"d{i}", version) for i in range(7)] for version in range(NUM_BATCHES)]


def documents_of(store):
    """Text, metadata and packets of each document, all of them read and checked."""
    found = {}
    for manifest in store.packets.list_documents("default", 100)[0]:
        store.packets.read_document("default", manifest.id)
        text = store.packets.document_text("default", manifest.id)
        found[manifest.id] = (text, manifest.metadata, manifest.packet_keys)
    return found


def packets_of(store):
    return {m.packet_key: (m.token_ids, m.kv_digest) for m in store.packets.iter_packets("default")}


@pytest.fixture
def undisturbed(new_store):
    """What a store holds before the first batch and after each, with nobody killed."""
    store = new_store(name="undisturbed.kvps", segment_tokens=16)
    states = [({}, {})]
    for batch in BATCHES:
        store.ingest(batch)
        states.append((documents_of(store), packets_of(store)))
    return states


@pytest.fixture
def reopened(new_store, model, word_embedder):
    """A function: name → the path of a new store, and a function that opens it."""

    def make(name):
        store = new_store(name=name, segment_tokens=16)
        store.close()
        return store.path, lambda: Store.open(store.path, model=model, embedder=word_embedder)

    return make


def require_acknowledged(store, states, acknowledged):
    """Each document is as the last batch left it, or as the one under way will leave it."""
    assert store.packets.check(deep=True) == []
    before = states[acknowledged][0]
    under_way = states[min(acknowledged + 1, NUM_BATCHES)][0]
    found = documents_of(store)
    assert before.keys() <= found.keys() <= under_way.keys()
    for document_id, contents in found.items():
        assert contents in (before.get(document_id), under_way[document_id])


def require_resumed(store, states, acknowledged):
    """Ingest again what was not acknowledged; the end is the undisturbed one's."""
    for batch in BATCHES[acknowledged:]:
        report = store.ingest(batch)
        assert report.documents.failed == 0
    assert (documents_of(store), packets_of(store)) == states[-1]
    assert store.packets.check(deep=True) == []
    again = store.ingest(BATCHES[-1])
    assert (again.documents.unchanged, again.packets.added) == (len(BATCHES[-1]), 0)


def acknowledged_by(connection):
    """Return how many batches a child that is dead had acknowledged and we have not heard of."""
    heard = 0
    try:
        while connection.poll():
            connection.recv()
            heard += 1
    except EOFError:
        pass
    return heard


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.slow)])
def test_a_killed_ingest_loses_nothing_and_resumes(undisturbed, reopened, start_work, kills):
    for seed in range(kills):
        rng = random.Random(seed)
        path, reopen = reopened(f"{seed}.kvps")
        child, connection = start_work("ingest_work.py", path, BATCHES)
        num_batches = rng.randrange(NUM_BATCHES)
        for _ in range(1 + num_batches):
            connection.recv()
        time.sleep(rng.uniform(0, 0.1))
        child.kill()
        child.join()
        acknowledged = num_batches + acknowledged_by(connection)
        try:
            with reopen() as store:
                require_acknowledged(store, undisturbed, acknowledged)
                require_resumed(store, undisturbed, acknowledged)
        except BaseException as error:
            error.add_note(f"kill with seed {seed}")
            raise


@pytest.mark.parametrize(
    ("method", "num_calls"),
    [("stage_packets", 1), ("stage_packets", 3), ("put_documents", 1), ("put_documents", 2)],
)
def test_an_ingest_killed_between_two_commits_finds_again_what_it_has_made(
    undisturbed, reopened, start_work, method, num_calls
):
    path, reopen = reopened("s.kvps")
    child, connection = start_work("ingest_work.py", path, BATCHES[:1], (method, num_calls))
    assert connection.recv() == "open"
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with reopen() as store:
        require_acknowledged(store, undisturbed, 0)
        filed = packets_of(store)
        assert filed  # and half of it waits for its documents
        report = store.ingest(BATCHES[0])
        assert report.packets.added == len(undisturbed[1][1]) - len(filed)
        require_resumed(store, undisturbed, 1)
