"""Verification finds what was damaged behind the store's back, and repair makes it whole."""

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine, Store
from kvpacket_store.errors import ModelError, UsageError
from kvpacket_store.store.schema import Table
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. " * 8, {"title": "Rhine"}),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 6, "ignore_eos": True}


def soft():
    return Adapter.untrained(np.random.default_rng(0).normal(0, 0.3, (50, 64)), num_tokens=4)


@pytest.fixture
def damaged(new_store, behind_its_back, tiny_model, word_embedder):
    """A function: make a store, damage it, open it again; the answer that it gave before."""
    opened = []

    def make(action):
        store = new_store(segment_tokens=64, adapter=soft())
        store.ingest(DOCS)
        store.ingest(DOCS[:1], namespace="other")
        answer = Engine(store).generate(QUESTION, documents=["rhine", "elbe"], **LONG)
        assert store.verify(deep=True, recompute=3).damaged == []
        store.close()
        behind_its_back(store.path, action)
        opened.append(Store.open(store.path, model=tiny_model("llama"), embedder=word_embedder))
        return opened[-1], answer

    yield make
    for store in opened:
        store.close()


def rows(txn, table):
    return [(bytes(key), bytes(value)) for key, value in txn.cursor(db=table)]


def spoil(table, nth, at=-1):
    def action(txn, tables):
        key, value = rows(txn, tables[table])[nth]
        changed = bytearray(value)
        changed[at] ^= 0x10
        txn.put(key, bytes(changed), db=tables[table])

    return action


def delete(table, nth):
    def action(txn, tables):
        key, value = rows(txn, tables[table])[nth]
        assert txn.delete(key, value, db=tables[table])

    return action


def add(table, key, value):
    return lambda txn, tables: txn.put(key, value, db=tables[table])


# the last chunks are those of namespace 2, the first those that the store itself owns (header)
REPAIRED = {
    "a spoilt chunk": spoil(Table.CHUNKS, -1),
    "a chunk lost": delete(Table.CHUNKS, -1),
    "a spoilt header": spoil(Table.CHUNKS, 0),
    "a manifest lost": delete(Table.MANIFESTS, -1),
    "a spoilt manifest": spoil(Table.MANIFESTS, -2),
    "a spoilt embedding": spoil(Table.EMBEDDINGS, 1),
    "an embedding lost": delete(Table.EMBEDDINGS, 0),
    "a reference lost": delete(Table.REFERENCES, 1),
    "a reference from nowhere": add(
        Table.REFERENCES, (1).to_bytes(4, "big") + bytes(32), b"nobody"
    ),
    "chunks of nothing": add(Table.CHUNKS, (1).to_bytes(4, "big") + bytes(36), b"lost"),
}


@pytest.mark.parametrize("action", REPAIRED.values(), ids=REPAIRED)
def test_damage_is_found_repaired_and_costs_no_truth(damaged, action):
    store, before = damaged(action)
    found = store.verify(deep=True)
    assert found.damaged
    assert found.remaining == found.damaged
    assert found.repaired == 0
    repaired = store.verify(deep=True, repair=True)
    assert repaired.remaining == []
    assert repaired.repaired == len(repaired.damaged) == len(found.damaged)
    assert store.verify(deep=True, recompute=5).damaged == []
    after = Engine(store).generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    assert after.token_ids == before.token_ids
    assert after.fallbacks == []
    assert store.ingest(DOCS).documents.unchanged == 2


def test_what_needs_the_document_itself_stays_and_is_named(damaged):
    store, _ = damaged(spoil(Table.TEXTS, 0))
    report = store.verify(deep=True, repair=True)
    assert report.repaired == 0
    assert report.remaining[0].document_ids == ("elbe",)
    store.ingest([Document("elbe", DOCS[1].text + " It is long.")])
    assert store.verify(deep=True).damaged == []


def test_verification_without_depth_does_not_read_bytes(damaged, monkeypatch):
    store, _ = damaged(spoil(Table.CHUNKS, -1))
    monkeypatch.setattr(store.packets, "read_packet", lambda *a: pytest.fail("read"))
    assert store.verify().damaged == []


def test_a_packet_of_other_kv_with_sound_checksums_is_found_by_its_digest(new_store):
    """As if K and V of another engine had taken the place of those that the manifest names."""
    from dataclasses import replace

    store = new_store(segment_tokens=64)
    store.ingest(DOCS)
    key = store.show("elbe")["packets"][0]["packet_key"]
    manifest = store.packets.get_manifest("default", key)
    from kvpacket_store.api.records import make_record

    body = store.prefiller.segment(manifest.token_ids[::-1])
    forged = make_record(store, key, manifest.token_ids, body)
    store.packets.replace_record("default", replace(forged, kv_digest=manifest.kv_digest))
    [found] = store.verify(deep=True).damaged
    assert (found.packet_key, found.document_ids) == (key, ("elbe",))
    assert store.verify(deep=True, repair=True).remaining == []


def test_recomputing_finds_kv_that_the_model_does_not_give(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(DOCS)
    key = store.show("elbe")["packets"][0]["packet_key"]
    manifest = store.packets.get_manifest("default", key)
    from kvpacket_store.api.records import make_record

    body = store.prefiller.segment(manifest.token_ids[::-1])
    store.packets.replace_record("default", make_record(store, key, manifest.token_ids, body))
    assert store.verify(deep=True).damaged == []
    report = store.verify(recompute=100)
    assert report.recomputed == report.checked
    assert [found.packet_key for found in report.damaged] == [key]
    assert store.verify(recompute=100, repair=True).remaining == []
    assert store.verify(recompute=100).damaged == []


def test_verification_beside_changes_reports_no_damage(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(DOCS)
    report = store.verify(deep=True, progress=lambda checked: checked > 1 or store.delete("rhine"))
    assert report.damaged == []
    store.ingest(DOCS)
    found = store.verify()
    assert found.damaged == []


def test_a_flipped_chunk_is_damage_where_its_packet_is_recomputed(damaged):
    store, _ = damaged(spoil(Table.CHUNKS, -1))
    report = store.verify(recompute=100)
    assert "checksum" in report.damaged[0].reason


def test_repair_does_not_undo_an_update_that_came_meanwhile(damaged, word_embedder, monkeypatch):
    store, _ = damaged(spoil(Table.EMBEDDINGS, 1))
    update = Document("rhine", "The Rhine has moved.")
    embed = word_embedder.embed
    waiting = [update]

    def embed_later(texts):
        if waiting:
            store.ingest([waiting.pop()])
        return embed(texts)

    monkeypatch.setattr(word_embedder, "embed", embed_later)
    store.verify(deep=True, repair=True)
    assert store.show("rhine")["text"] == update.text
    monkeypatch.undo()
    assert store.verify(deep=True, repair=True).remaining == []


def test_repair_says_what_it_lacks(damaged, monkeypatch):
    store, _ = damaged(spoil(Table.CHUNKS, -1))
    monkeypatch.setattr(type(store), "model", property(_no_model))
    with pytest.raises(ModelError, match="not installed"):
        store.verify(deep=True, repair=True)


def _no_model(store):
    raise ModelError("the model is not installed")


def test_a_store_that_may_not_be_written_is_not_repaired(new_store, tiny_model):
    store = new_store(segment_tokens=64)
    store.close()
    with (
        Store.open(store.path, model=tiny_model("llama"), read_only=True) as opened,
        pytest.raises(UsageError, match="reading alone"),
    ):
        opened.verify(repair=True)


@pytest.mark.parametrize("wrong", [-1, "x", 1.5])
def test_what_is_no_number_is_refused(new_store, wrong):
    store = new_store()
    with pytest.raises(UsageError):
        store.verify(recompute=wrong)
    with pytest.raises(UsageError):
        store.gc(grace_s=wrong)


def test_a_spoilt_text_is_made_good_by_ingesting_the_document_again(damaged):
    store, _ = damaged(spoil(Table.TEXTS, 0))
    assert store.ingest(DOCS).documents.updated == 1
    assert store.verify(deep=True).damaged == []


def test_a_spoilt_document_keeps_its_pin_and_its_text_until_it_is_replaced(
    damaged, word_embedder, monkeypatch
):
    store, _ = damaged(spoil(Table.DOCUMENTS, 0))
    store.packets.document_text("default", "elbe")
    with monkeypatch.context() as patch:
        patch.setattr(word_embedder, "embed", _fail)
        with pytest.raises(RuntimeError):
            store.ingest(DOCS)
    assert store.packets.document_text("default", "elbe") == DOCS[1].text
    report = store.ingest(DOCS)
    assert (report.documents.added, report.documents.updated) == (0, 1)


def _fail(texts):
    raise RuntimeError("out of memory")
