"""Stores of level ``linear``: base and enhancement, the codec pack beside them, equal answers."""

import dataclasses

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine, Store
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.records import decode_packet, decode_packet_base, open_packet
from kvpacket_store.codec import decode, decode_base, info, named_pack
from kvpacket_store.errors import (
    CodecError,
    CorruptRecordError,
    LevelUnavailableError,
    NotFoundError,
    UsageError,
)
from kvpacket_store.store import BytesRead, PacketRecord
from kvpacket_store.store.schema import Table, packet_row_key
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
def linear(new_store, pack_of):
    """A function: options → a filled store of level linear, small segments, an adapter."""

    def make(**options):
        options = {"layers": None, "kv_dtype": "bf16", "codec_pack": pack_of()} | options
        store = new_store(codec="linear", segment_tokens=64, adapter=soft(), **options)
        store.ingest(DOCS)
        return store

    return make


@pytest.fixture
def reopened(tiny_model, word_embedder):
    """A function: close a store and open it again with the same model."""
    opened = []

    def again(store):
        store.close()
        opened.append(Store.open(store.path, model=tiny_model("llama"), embedder=word_embedder))
        return opened[-1]

    yield again
    for store in opened:
        store.close()


def keys_of(store):
    keys = [p["packet_key"] for d in DOCS for p in store.show(d.id)["packets"]]
    return list(dict.fromkeys(keys))


def record_of(store, key):
    manifest, record, enhancement = store.packets.read_packet("default", key)
    names = ("token_ids", "positions", "raw_bytes", "kv_digest", "engine")
    told = {name: getattr(manifest, name) for name in names}
    return PacketRecord(packet_key=key, record=record, enhancement=enhancement, **told)


def lose_enhancements(store):
    """Behind the store's back: every chunk of every enhancement."""

    def action(txn, tables):
        lost = 0
        for manifest in manifests:
            for number in manifest.layer_chunks(1):
                key = packet_row_key(1, manifest.packet_key) + number.to_bytes(4, "big")
                lost += txn.delete(key, db=tables[Table.CHUNKS])
        assert lost >= len(manifests)

    manifests = [store.packets.get_manifest("default", key) for key in keys_of(store)]
    return action


def test_a_store_has_two_layers_unless_told_otherwise(linear):
    store = linear()
    assert (store.meta.codec, store.meta.layers) == ("linear", 2)
    assert store.codec_pack.digest == store.meta.codec_pack
    for key in keys_of(store):
        packet = store.packets.read_packet("default", key)
        assert info(packet.record).part == "base"
        assert info(packet.enhancement).part == "enhancement"
        for record in (packet.record, packet.enhancement):
            assert info(record).pack == named_pack(record) == store.codec_pack.digest


def test_one_layer_is_one_record(linear):
    store = linear(layers=1)
    for key in keys_of(store):
        packet = store.packets.read_packet("default", key)
        assert packet.enhancement is None
        assert (info(packet.record).level, info(packet.record).part) == ("linear", "whole")
        assert named_pack(packet.record) == store.codec_pack.digest
        assert named_pack(packet.record[:71]) is None


@pytest.mark.parametrize("layers", [1, 2])
def test_packets_and_answers_are_those_of_another_level(linear, new_store, reopened, layers):
    exact = new_store(name="fast.kvps", segment_tokens=64, adapter=soft(), kv_dtype="bf16")
    exact.ingest(DOCS)
    store = reopened(linear(layers=layers))
    assert keys_of(store) == keys_of(exact), "the codec is no part of a packet's identity"
    for index in range(2):
        found, wanted = store.packet("rhine", index=index), exact.packet("rhine", index=index)
        assert np.array_equal(found.k, wanted.k)
        assert np.array_equal(found.v, wanted.v)
    ask = {"documents": ["rhine", "elbe"], **LONG}
    answer, expected = (Engine(s).generate(QUESTION, **ask) for s in (store, exact))
    assert answer.token_ids == expected.token_ids
    assert answer.fallbacks == []
    report = store.verify(deep=True, recompute=3)
    assert (report.damaged, report.recomputed) == ([], 3)


def test_the_base_is_read_and_decoded_without_the_enhancement(linear, reopened, behind_its_back):
    store = linear()
    keys, pack = keys_of(store), store.codec_pack
    before = [PacketLoader(store).base("default", key).body for key in keys]
    bases = [store.packets.read_record("default", key) for key in keys]
    exact = [PacketLoader(store).body("default", key, "rhine").body for key in keys]
    for body, whole, record in zip(before, exact, bases, strict=True):
        k, v = decode_base(record, packs=[pack])
        assert np.array_equal(body.k, k)
        assert np.array_equal(body.v, v)
        assert body.k.shape == whole.k.shape
    assert any(not np.array_equal(b.k, e.k) for b, e in zip(before, exact, strict=True))
    spoil = lose_enhancements(store)
    store.close()
    behind_its_back(store.path, spoil)
    store = reopened(store)
    for key, body in zip(keys, before, strict=True):
        again = PacketLoader(store).base("default", key).body
        assert np.array_equal(again.k, body.k)
        assert np.array_equal(again.v, body.v)
        with pytest.raises(CorruptRecordError):
            store.packets.read_packet("default", key)


def test_a_lost_enhancement_is_prefilled_again_and_repaired(linear, reopened, behind_its_back):
    store = linear()
    expected = Engine(store).generate(QUESTION, documents=["rhine"], **LONG).token_ids
    spoil = lose_enhancements(store)
    store.close()
    behind_its_back(store.path, spoil)
    store = reopened(store)
    assert {found.packet_key for found in store.verify().damaged} == set(keys_of(store))
    answer = Engine(store).generate(QUESTION, documents=["rhine"], **LONG)
    assert answer.token_ids == expected
    assert {f.packet_key for f in answer.fallbacks} == {
        p["packet_key"] for p in store.show("rhine")["packets"]
    }
    report = store.verify(deep=True, repair=True)
    assert report.repaired == len(report.damaged) > 0
    assert report.remaining == []
    assert all(store.packets.read_packet("default", key).enhancement for key in keys_of(store))


@pytest.mark.parametrize("layers", [1, 2])
def test_packets_are_read_layer_by_layer(linear, layers):
    store = linear(layers=layers)
    for key in keys_of(store):
        packet = store.packets.read_base("default", key)
        digest = packet.manifest.kv_digest
        rest = None
        if layers == 2:
            rest = store.packets.read_enhancement("default", key, kv_digest=digest)
        expected = [decode_packet(store, packet.record, rest), decode_packet_base(store, packet)]
        for reader, (k, v) in zip(
            (open_packet(store, packet.record, rest), open_packet(store, packet.record)),
            expected,
            strict=True,
        ):
            for i in range(len(k)):
                found = reader.layer(i)
                assert np.array_equal(found[0], k[i])
                assert np.array_equal(found[1], v[i])


def test_a_packet_that_cannot_be_opened_is_a_codec_error(linear):
    store = linear()
    packet = store.packets.read_packet("default", keys_of(store)[0])
    forged = [(b"no record",), (packet.enhancement,), (packet.record, packet.record)]
    for records in forged:
        with pytest.raises(CodecError):
            open_packet(store, *records)


def test_a_packet_whose_pack_is_lost_is_a_codec_error(linear, reopened):
    store = linear()
    record = store.packets.read_record("default", keys_of(store)[0])
    for file in (store.path / "codec-packs").iterdir():
        file.unlink()
    with pytest.raises(CodecError):
        open_packet(reopened(store), record)


def test_a_draft_reads_bases_alone_and_the_rest_when_it_is_wanted(linear, reopened):
    store = reopened(linear())
    packets = store.packets
    sizes = [packets.get_manifest("default", key).layer_bytes for key in keys_of(store)]
    bases, rests = map(sum, zip(*sizes, strict=True))
    assert packets.bytes_read == BytesRead()
    for key in keys_of(store):
        PacketLoader(store).base("default", key)
    assert packets.bytes_read == BytesRead(base=bases)
    for key in keys_of(store):
        digest = packets.get_manifest("default", key).kv_digest
        packets.read_enhancement("default", key, kv_digest=digest)
    assert packets.bytes_read == BytesRead(base=bases, enhancement=rests)


def test_the_base_of_a_packet_in_one_layer_is_exact(linear, new_store):
    for store in (linear(layers=1), new_store(name="fast.kvps", segment_tokens=64)):
        store.ingest(DOCS)
        for key in keys_of(store):
            body = PacketLoader(store).base("default", key).body
            exact = PacketLoader(store).body("default", key, "rhine").body
            assert np.array_equal(body.k, exact.k)
            assert np.array_equal(body.v, exact.v)


def test_a_base_that_is_not_there_is_named(linear):
    store = linear()
    with pytest.raises(NotFoundError):
        PacketLoader(store).base("default", "0" * 64)
    key = keys_of(store)[0]
    forged = dataclasses.replace(record_of(store, key), record=b"no record", enhancement=b"at all")
    store.packets.replace_record("default", forged)
    with pytest.raises(CodecError):
        PacketLoader(store).base("default", key)


def test_the_store_stands_alone_with_its_pack(linear, reopened, pack_of):
    store = linear()
    [file] = (store.path / "codec-packs").iterdir()
    assert file.name == f"{pack_of().digest}.kvc"
    store = reopened(store)
    assert store.codec_pack.digest == pack_of().digest
    packet = store.packets.read_packet("default", keys_of(store)[0])
    with pytest.raises(LevelUnavailableError):
        decode_base(packet.record)
    with pytest.raises(UsageError):
        decode(packet.record)
