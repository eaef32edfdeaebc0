"""Namespaces share nothing, and what is removed is gone from every place at once."""

import threading

import numpy as np
import pytest

from kvpacket_store.api import Engine
from kvpacket_store.errors import NotFoundError
from kvpacket_store.retrieve import Retriever
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, chunk_key, packet_row_key
from kvpacket_store.store.synthetic import make_meta, make_record, make_write
from kvpacket_store.types import Document

pytestmark = pytest.mark.conformance

TEXT = "The Rhine rises in the Alps. It flows to the North Sea."
QUESTION = "Where does the Rhine rise?"
SHORT = {"max_new_tokens": 3, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    return new_store(segment_tokens=32)


def message_of(call):
    with pytest.raises(NotFoundError) as caught:
        call()
    return str(caught.value)


def test_anothers_documents_look_like_absent_ones(store):
    """Same class, same words, and the same places looked at: nothing to tell them apart by."""
    store.ingest([Document("secret", TEXT)], namespace="a")
    store.ingest([Document("own", "Something else.")], namespace="b")
    engine = Engine(store)
    key = store.show("secret", namespace="a")["packets"][0]["packet_key"]
    never = "0" * 64
    for one, other in [
        (
            lambda: store.show("secret", namespace="b"),
            lambda: store.show("absent", namespace="b"),
        ),
        (
            lambda: store.delete("secret", namespace="b"),
            lambda: store.delete("absent", namespace="b"),
        ),
        (
            lambda: engine.generate(QUESTION, documents=["secret"], namespace="b"),
            lambda: engine.generate(QUESTION, documents=["absent"], namespace="b"),
        ),
        (
            lambda: store.packets.read_record("b", key),
            lambda: store.packets.read_record("b", never),
        ),
    ]:
        theirs, absent = message_of(one), message_of(other)
        assert theirs.replace("secret", "absent").replace(key, never) == absent
    assert not store.packets.has_packet("b", key)
    assert store.show("secret", namespace="a")["text"] == TEXT


def test_a_text_that_another_tenant_has_is_prefilled_again(store, monkeypatch):
    """Neither hits nor counts tell a tenant what others have filed."""
    documents = [Document("d", TEXT)]
    first = store.ingest(documents, namespace="a")
    prefilled = []
    segment = store.prefiller.segment
    monkeypatch.setattr(
        store.prefiller, "segment", lambda ids: prefilled.append(ids) or segment(ids)
    )
    second = store.ingest(documents, namespace="b")
    assert second.packets == first.packets
    assert len(prefilled) == first.packets.added > 0
    engine = Engine(store)
    engine.generate(QUESTION, documents=["d"], namespace="a", **SHORT)
    answer = engine.generate(QUESTION, documents=["d"], namespace="b", **SHORT)
    assert {packet.tier for d in answer.documents for packet in d.packets} == {"disk"}


class Directions:
    """A text names its direction; all are near one another."""

    name, digest, dimension = "directions", "d" * 64, 16

    def embed(self, texts):
        rows = np.ones((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[0] += 1e-4 * int(text)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_near_duplicates_of_two_tenants_never_mix(tmp_path):
    num_documents = 1000
    vectors = Directions().embed([str(n) for n in range(num_documents)])
    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as store:
        for tenant in ("a", "b"):
            writes = []
            for n in range(num_documents):
                write = make_write(f"{tenant} {n}", [make_record(f"{tenant} {n}", 64)])
                rows = [vectors[n].astype("<f4").tobytes()]
                writes.append(type(write)(write.manifest, write.records, rows))
            store.put_documents(tenant, writes)
        retriever = Retriever(store, Directions(), tmp_path / "index", wait_for_rebuild=True)
        for tenant in ("a", "b"):
            for query in ("0", "500", "999"):
                hits = retriever.retrieve(query, tenant, num_documents)
                assert len(hits) == num_documents
                assert {hit.document_id.split()[0] for hit in hits} == {tenant}


def test_a_dropped_segment_is_gone_from_packets_index_and_answers(store):
    paragraphs = ["The Rhine is a river.", "Copper is a metal.", "Owls hunt at night."]
    engine = Engine(store)
    store.ingest([Document("d", "\n\n".join(paragraphs))])
    before = [p["packet_key"] for p in store.show("d")["packets"]]
    assert len(before) == 3
    assert before[2] in keys_of(engine.generate("Owls hunt at night.", top_k=5, **SHORT))
    store.ingest([Document("d", "\n\n".join(paragraphs[:2]))])
    after = [p["packet_key"] for p in store.show("d")["packets"]]
    gone = set(before) - set(after)
    assert gone
    assert {m.packet_key for m in store.packets.iter_packets("default")} == set(after)
    for asking in (engine, Engine(store)):  # one that held it in memory, one that did not
        answer = asking.generate("Owls hunt at night.", top_k=5, **SHORT)
        assert keys_of(answer) == set(after)
    assert not gone & {row[2] for row in store.packets.iter_embeddings("default")}
    assert not any(store.packets.has_packet("default", key) for key in gone)


def keys_of(answer):
    return {packet.packet_key for document in answer.documents for packet in document.packets}


@pytest.mark.parametrize("lost", ["manifest", "chunk"])
def test_a_packet_lost_behind_the_manifest_is_named_and_made_again(store, lost):
    store.ingest([Document("d", TEXT)])
    key = store.show("d")["packets"][0]["packet_key"]

    def lose(tx):
        row = packet_row_key(1, key)
        if lost == "manifest":
            assert tx.delete(Table.MANIFESTS, row)
        assert tx.delete(Table.CHUNKS, chunk_key(row, 0))

    store.packets._environment.write(lose)
    assert key in {damage.packet_key for damage in store.packets.check()}
    report = store.ingest([Document("d", TEXT)])
    assert (report.documents.failed, report.packets.added) == (0, 1)
    assert store.packets.has_packet("default", key)
    assert store.packets.check(deep=True) == []


def test_readers_get_their_own_packet_while_a_writer_reuses_pages(tmp_path):
    records = [make_record(f"r{i}", 150_000 + i) for i in range(6)]
    failures, stop = [], threading.Event()
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 20) as store:
        store.put_documents("n", [make_write(f"d{i}", [r]) for i, r in enumerate(records)])

        def read(record):
            try:
                while not stop.is_set():
                    found = store.read_record("n", record.packet_key, record.token_ids)
                    assert found == record.record
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read, args=(record,)) for record in records]
        for thread in threads:
            thread.start()
        for version in range(60):
            store.put_documents("n", [make_write("x", [make_record(f"x{version}", 400_000)])])
            if version % 3 == 2:
                store.delete_document("n", "x")
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.check(deep=True) == []
