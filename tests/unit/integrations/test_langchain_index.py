"""LangChain's index() over a store: what is new is filed, what is gone is deleted, and no more."""

import pytest
from langchain_core.documents import Document as LCDocument
from langchain_core.indexing import aindex, index

from kvpacket_store.api import Engine, Store
from kvpacket_store.errors import IncompleteUpsertError
from kvpacket_store.integrations.langchain import (
    ChatKVPacket,
    KVPacketIndex,
    KVPacketRecordManager,
)
from kvpacket_store.store import now_ms
from kvpacket_store.store.schema import Table

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


def split(text, source="one", **metadata):
    return LCDocument(text, metadata={"source": source, **metadata})


A, B, C = (split(f"{name} rises in the mountains.") for name in ("Aare", "Birs", "Cher"))


@pytest.fixture
def engine(empty_engine):
    return empty_engine


@pytest.fixture
def target(engine):
    return KVPacketIndex(engine=engine)


@pytest.fixture
def records(engine):
    return KVPacketRecordManager(engine.store)


@pytest.fixture
def run(records, target):
    def run(documents, cleanup="full", **options):
        options.setdefault("source_id_key", "source")
        counts = index(documents, records, target, cleanup=cleanup, key_encoder="sha256", **options)
        return tuple(counts[f"num_{name}"] for name in ("added", "updated", "skipped", "deleted"))

    return run


@pytest.fixture
def prefilled(engine, monkeypatch):
    """A list that grows by the tokens of each segment that is prefilled."""
    segment, calls = engine.store.prefiller.segment, []

    def counted(token_ids):
        calls.append(token_ids)
        return segment(token_ids)

    monkeypatch.setattr(engine.store.prefiller, "segment", counted)
    return calls


def texts(engine):
    ids = [entry.id for entry in engine.store.list().documents]
    return sorted(engine.store.show(document_id)["text"] for document_id in ids)


def test_what_is_new_is_filed_once(run, engine, prefilled):
    assert run([A, B]) == (2, 0, 0, 0)
    assert run([A, B]) == (0, 0, 2, 0)
    assert run([A, B, C, C]) == (1, 0, 3, 0)
    assert len(prefilled) == 3
    assert run([A], force_update=True) == (0, 1, 0, 2)
    assert texts(engine) == [A.page_content]


@pytest.mark.parametrize(
    ("cleanup", "second", "left"),
    [
        (None, [A], {"a", "b", "c"}),
        ("full", [A], {"a"}),
        ("incremental", [A], {"a", "c"}),
        ("scoped_full", [A], {"a", "c"}),
    ],
)
def test_each_cleanup_deletes_what_it_says(run, engine, target, cleanup, second, left):
    other = split("Cher rises elsewhere.", source="two")
    run([A, B, other], cleanup=None)
    run(second, cleanup=cleanup)
    names = {A.page_content: "a", B.page_content: "b", other.page_content: "c"}
    assert {names[text] for text in texts(engine)} == left
    found = {names[d.page_content] for d in target.invoke("mountains", k=5)}
    assert found == left


def test_a_chunk_that_is_gone_is_gone_everywhere(run, engine, target):
    run([A, B, C])
    keys = {d.page_content: d.metadata["packet_key"] for d in target.invoke("rises", k=3)}
    assert run([A, B]) == (0, 0, 2, 1)
    assert C.page_content not in texts(engine)
    assert C.page_content not in [d.page_content for d in target.invoke("Cher rises", k=3)]
    assert not engine.store.packets.has_packet("default", keys[C.page_content])
    assert engine.store.packets.has_packet("default", keys[A.page_content])


def test_new_metadata_prefills_nothing(run, engine, prefilled):
    run([A, B])
    prefilled.clear()
    assert run([split(A.page_content, page=2), B]) == (1, 0, 1, 1)
    assert prefilled == []
    assert {entry.metadata.get("page") for entry in engine.store.list().documents} == {2, None}


@pytest.mark.parametrize("lost", [Table.CHUNKS, Table.MANIFESTS, Table.DOCUMENTS, Table.EMBEDDINGS])
def test_what_was_lost_behind_its_back_is_indexed_again(
    run, engine, behind_its_back, model, word_embedder, lost
):
    run([A, B])
    path = engine.store.path
    engine.store.close()

    def delete(txn, tables):
        with txn.cursor(tables[lost]) as cursor:
            assert cursor.last()
            cursor.delete()

    behind_its_back(path, delete)
    with Store.open(path, model=model, embedder=word_embedder) as store:
        again = KVPacketIndex(engine=Engine(store))
        options = {"cleanup": "full", "key_encoder": "sha256"}
        counts = index([A, B], KVPacketRecordManager(store), again, **options)
        assert (counts["num_added"], counts["num_skipped"]) == (1, 1)
        assert {d.page_content for d in again.invoke("rises", k=5)} == {
            A.page_content,
            B.page_content,
        }
        chat = ChatKVPacket(engine=again.engine, max_tokens=2, options={"ignore_eos": True})
        message = chat.invoke("rises?", documents=again.invoke("rises", k=2))
        assert message.response_metadata["fallbacks"] == []


def test_an_evicted_packet_is_no_loss(new_store, monkeypatch):
    store = new_store(name="evicting.kvps", packet_ttl_s=60)
    target, records = KVPacketIndex(engine=Engine(store)), KVPacketRecordManager(store)
    index([A], records, target, key_encoder="sha256")
    monkeypatch.setattr("kvpacket_store.store.writer.now_ms", lambda: now_ms() + 100_000)
    assert store.gc().evicted_packets == 1
    monkeypatch.setattr(store.prefiller, "segment", lambda _: pytest.fail("prefilled"))
    assert index([A], records, target, key_encoder="sha256")["num_skipped"] == 1


def test_a_document_that_fails_raises_and_is_not_recorded(run, engine, target, records):
    empty = split(" \n")
    with pytest.raises(IncompleteUpsertError, match="1 of 3 documents were not filed") as caught:
        run([A, empty, B])
    assert len(caught.value.succeeded) == 2
    assert [reason for reason in caught.value.failed.values() if "empty" in reason]
    assert records.list_keys() == []
    assert run([A, B]) == (2, 0, 0, 0)
    with pytest.raises(IncompleteUpsertError, match="two documents"):
        target.upsert([LCDocument("x", id="same"), LCDocument("y", id="same"), A])
    with pytest.raises(IncompleteUpsertError, match="JSON"):
        target.upsert([LCDocument("x", metadata={"at": object()})])
    assert target.get(["same"]) == []


@pytest.mark.anyio
async def test_on_a_loop_it_does_the_same(engine, target, records):
    options = {"cleanup": "incremental", "source_id_key": "source", "key_encoder": "sha256"}
    counts = await aindex([A, B, C], records, target, **options)
    assert counts["num_added"] == 3
    counts = await aindex([A], records, target, **options)
    assert (counts["num_skipped"], counts["num_deleted"]) == (1, 2)
    assert texts(engine) == [A.page_content]
    assert [d.page_content for d in await target.ainvoke("rises", k=4)] == [A.page_content]


def test_namespaces_have_records_of_their_own(engine, run):
    run([A])
    other = KVPacketIndex(engine=engine, namespace="other")
    records = KVPacketRecordManager(engine.store, "other")
    counts = index([A], records, other, cleanup="full", key_encoder="sha256")
    assert counts["num_added"] == 1
    index([], records, other, cleanup="full", key_encoder="sha256")
    assert other.invoke("rises") == []
    assert texts(engine) == [A.page_content]
