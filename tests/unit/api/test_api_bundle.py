"""Bundles between two stores of one model: the same answers, and nothing forged gets in."""

from dataclasses import replace

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.records import make_record
from kvpacket_store.codec import encode
from kvpacket_store.errors import CodecError, ModelMismatchError, NotFoundError
from kvpacket_store.packet import kv_digest
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea.", {"kind": "river"}),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
SHORT = {"max_new_tokens": 4, "ignore_eos": True}


def soft():
    return Adapter.untrained(np.random.default_rng(0).normal(0, 0.3, (50, 64)), num_tokens=4)


@pytest.fixture
def stores(new_store):
    first = new_store(name="first.kvps", adapter=soft())
    first.ingest(DOCS)
    return first, new_store(name="second.kvps", adapter=soft())


def test_what_is_imported_answers_as_where_it_came_from(stores, tmp_path):
    first, second = stores
    report = first.export_bundle(tmp_path / "b.kvpb")
    assert (report.documents, report.packets) == (2, 2)
    taken = second.import_bundle(tmp_path / "b.kvpb")
    assert (taken.added, taken.packets_added, taken.errors) == (2, 2, [])
    assert second.import_bundle(tmp_path / "b.kvpb").unchanged == 2
    for options in ({"documents": ["rhine", "elbe"]}, {"top_k": 2}):
        answers = [Engine(store).generate(QUESTION, **options, **SHORT) for store in stores]
        assert answers[0].token_ids == answers[1].token_ids
        assert answers[1].fallbacks == []
    assert second.show("rhine") == first.show("rhine")
    assert second.verify(deep=True, recompute=2).damaged == []
    assert second.ingest(DOCS).documents.unchanged == 2


def test_a_part_of_a_store_travels(stores, tmp_path):
    first, second = stores
    first.export_bundle(tmp_path / "b.kvpb", ["elbe"])
    second.import_bundle(tmp_path / "b.kvpb", namespace="mine")
    assert [d.id for d in second.list(namespace="mine").documents] == ["elbe"]
    with pytest.raises(NotFoundError):
        first.export_bundle(tmp_path / "c.kvpb", ["nowhere"])
    assert not (tmp_path / "c.kvpb").exists()


def test_a_bundle_of_another_adapter_is_refused(stores, new_store, tmp_path):
    stores[0].export_bundle(tmp_path / "b.kvpb")
    bare = new_store(name="bare.kvps")
    with pytest.raises(ModelMismatchError, match="adapter"):
        bare.import_bundle(tmp_path / "b.kvpb")
    assert bare.list().documents == []


def forgeries(store, record):
    other = store.prefiller.segment(record.token_ids[::-1])
    k, v = other.k, other.v
    yield "the key of other", replace(record, token_ids=record.token_ids[::-1])
    yield (
        "other K and V",
        replace(
            make_record(store, record.packet_key, record.token_ids, other),
            kv_digest=record.kv_digest,
        ),
    )
    yield "other K and V", replace(record, raw_bytes=record.raw_bytes - 2)
    yield "other K and V", replace(record, positions=record.positions + 1)
    yield (
        "another KV dtype",
        replace(
            record,
            record=encode(k.astype("u2"), v.astype("u2"), kv_dtype="bf16", level="fast"),
            kv_digest=kv_digest(k.astype("u2"), v.astype("u2")),
        ),
    )
    short = store.prefiller.segment(record.token_ids[:-1])
    yield "is needed", make_record(store, record.packet_key, record.token_ids, short)


def test_forged_records_are_refused(stores):
    store = stores[0]
    manifest = store.packets.get_manifest(
        "default", store.show("rhine")["packets"][0]["packet_key"]
    )
    body = store.prefiller.segment(manifest.token_ids)
    genuine = make_record(store, manifest.packet_key, manifest.token_ids, body)
    loader = PacketLoader(store)
    loader.require_genuine(genuine)
    tried = 0
    for reason, forged in forgeries(store, genuine):
        with pytest.raises(CodecError, match=reason):
            loader.require_genuine(forged)
        tried += 1
    assert tried == 6
