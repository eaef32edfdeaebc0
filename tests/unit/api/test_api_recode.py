"""A store goes over to another level: packet by packet, to be broken off and taken up again."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.recode import recode
from kvpacket_store.codec import info
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import (
    CapReachedError,
    LevelUnavailableError,
    ReadOnlyError,
    UsageError,
)
from kvpacket_store.store.schema import Table, packet_row_key
from kvpacket_store.types import Document

DOCS = [Document(name, f"The {name} flows to the sea. " * 3) for name in ("Rhine", "Elbe", "Oder")]
QUESTION = "Where does the Rhine flow?"
LONG = {"max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    """Two namespaces of a store at level fast."""
    made = new_store(kv_dtype="bf16", segment_tokens=128)
    made.ingest(DOCS)
    made.ingest(DOCS[:1], namespace="other")
    return made


def note(steps, done, total):
    steps.append((done, total))


def levels(store):
    """Level, part, layers and pack of every packet."""
    found = []
    for manifest in store.packets.iter_packets():
        packet = store.packets.read_packet(manifest.namespace, manifest.packet_key)
        told = info(packet.record)
        found.append((told.level, told.part, len(manifest.layer_bytes), told.pack))
    return found


def exact(store):
    packets = [store.packet(d.id) for d in DOCS]
    return [(p.key, p.k.tobytes(), p.v.tobytes()) for p in packets]


def test_every_packet_is_encoded_anew_and_none_changes(store, pack):
    before, manifests = exact(store), list(store.packets.iter_packets())
    answer = Engine(store).generate(QUESTION, documents=["Rhine"], **LONG).token_ids
    total_bytes = sum(m.stored_bytes for m in manifests)
    for codec, layers, expected in [
        ("linear", None, ("linear", "base", 2, pack.digest)),
        ("linear", 1, ("linear", "whole", 1, pack.digest)),
        ("raw", None, ("raw", None, 1, None)),
        ("linear", 2, ("linear", "base", 2, pack.digest)),
        ("fast", 1, ("fast", None, 1, None)),
    ]:
        asked = pack if codec == "linear" and layers is None else None  # later: the store has it
        steps = []
        report = recode(store, codec, layers, asked, partial(note, steps))
        assert (report.recoded, report.unchanged, report.skipped) == (4, 0, [])
        assert report.bytes_before == total_bytes
        total_bytes = report.bytes_after
        assert steps == [(n, 4) for n in (1, 2, 3, 4)]
        assert levels(store) == [expected] * 4
        assert exact(store) == before
        assert (store.meta.codec, store.meta.layers) == (codec, expected[2])
        assert store.verify(deep=True, recompute=2).damaged == []
    after = list(store.packets.iter_packets())
    assert after == manifests, "fast again: the same records, digests, engines and references"
    assert Engine(store).generate(QUESTION, documents=["Rhine"], **LONG).token_ids == answer


def test_new_packets_are_of_the_new_level_and_old_ones_stay_readable(store, pack, monkeypatch):
    monkeypatch.setattr("kvpacket_store.api.recode._packet_keys", lambda store: iter(()))
    recode(store, "linear", 2, pack)
    monkeypatch.undo()
    store.ingest([Document("Main", "The Main flows into the Rhine.")])
    assert sorted(told[0] for told in levels(store)) == ["fast"] * 4 + ["linear"]
    assert store.verify(deep=True, recompute=5).damaged == []
    assert recode(store, "linear", 2).recoded == 4


def test_it_goes_on_where_it_was_broken_off(store, pack, reopen):
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recode(store, "linear", 2, pack, interrupt)
    store = reopen(store)
    assert store.meta.codec == "linear", "new packets are of the new level at once"
    assert sorted(told[0] for told in levels(store)) == ["fast"] * 2 + ["linear"] * 2
    assert store.verify(deep=True).damaged == []
    report = recode(store, "linear")
    assert (report.recoded, report.unchanged) == (2, 2)
    assert recode(store, "linear").recoded == 0


@pytest.fixture
def reopen(tiny_model, word_embedder):
    """A function: close a store and open it again with the same model."""
    opened = []

    def again(store, **options):
        store.close()
        options = {"model": tiny_model("llama"), "embedder": word_embedder} | options
        opened.append(Store.open(store.path, **options))
        return opened[-1]

    yield again
    for store in opened:
        store.close()


def test_a_damaged_packet_is_skipped_and_named(store, pack, reopen, behind_its_back):
    spoilt, unreadable = (store.packet(d.id).key for d in DOCS[1:])
    store.close()

    def spoil(txn, tables):
        for table, key in [
            (Table.CHUNKS, packet_row_key(1, spoilt) + bytes(4)),
            (Table.MANIFESTS, packet_row_key(1, unreadable)),
        ]:
            value = txn.get(key, db=tables[table])
            txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=tables[table])

    behind_its_back(store.path, spoil)
    store = reopen(store)
    report = recode(store, "linear", 2, pack)
    assert report.recoded == 2
    assert {d.packet_key for d in report.skipped} == {spoilt, unreadable}
    assert all(d.reason and d.namespace == "default" for d in report.skipped)
    assert report.to_dict()["skipped"][0]["packet_key"] in {spoilt, unreadable}
    assert store.verify(deep=True, repair=True).remaining == []
    assert {told[0] for told in levels(store)} == {"linear"}


def test_other_bits_than_were_filed_are_not_taken_over(store, pack):
    key = store.packet("Rhine").key
    body = PacketLoader(store).body("default", key, "Rhine").body
    manifest = store.packets.get_manifest("default", key)
    from kvpacket_store.api.records import make_record

    forged = make_record(store, key, manifest.token_ids, body)
    store.packets.replace_record("default", dataclasses.replace(forged, kv_digest="0" * 64))
    [skipped] = recode(store, "raw").skipped
    assert (skipped.packet_key, skipped.namespace) == (key, "default")


def test_evicted_and_nobodys_packets_are_passed_over(store, pack):
    key = store.packet("Rhine").key
    record = store.packets.read_packet("default", key)
    from kvpacket_store.store.packets import evict_layers

    store.packets._environment.write(lambda tx: evict_layers(tx, packet_row_key(1, key)))
    from kvpacket_store.store.synthetic import make_record

    staged = make_record("staged")
    staged = dataclasses.replace(staged, record=record.record)
    store.packets.stage_packets("default", {staged.packet_key: staged})
    report = recode(store, "raw")
    assert (report.recoded, report.unchanged, report.skipped) == (3, 1, [])
    assert store.packets.get_manifest("default", key).is_evicted


def test_the_newest_pack_that_fits_is_taken_where_none_is_in_use(store, pack_of, pack):
    newer = pack_of(seed=1)
    for one in (pack, make_pack(PackShape(1, 1, 4, 1)), newer):
        store.codec_packs.keep(one)
    assert recode(store, "linear").recoded == 4
    assert store.codec_pack.digest == newer.digest
    assert {told[3] for told in levels(store)} == {newer.digest}
    assert recode(store, "linear", pack=pack).recoded == 4
    assert store.codec_pack.digest == pack.digest
    assert recode(store, "linear").unchanged == 4  # the one in use stays
    assert len(list((store.path / "codec-packs").iterdir())) == 3


def test_what_cannot_be_changes_nothing(store, pack, reopen):
    for arguments, error in [
        (("linear",), LevelUnavailableError),
        (("spec",), LevelUnavailableError),
        (("zip",), UsageError),
        (("fast", 2), UsageError),
        (("fast", None, pack), UsageError),
        (("linear", 2, dataclasses.replace(pack, weights="")), UsageError),
    ]:
        with pytest.raises(error):
            recode(store, *arguments)
    assert store.meta.codec == "fast"
    assert not (store.path / "codec-packs").exists()
    store = reopen(store, read_only=True)
    with pytest.raises(ReadOnlyError):
        recode(store, "linear", 2, pack)
    assert not (store.path / "codec-packs").exists()


def test_a_pack_never_takes_a_store_over_its_cap(new_store, model, pack):
    store = new_store(name="capped.kvps", kv_dtype="bf16", max_bytes=2 << 20)
    store.ingest(DOCS)
    heavy = dataclasses.replace(
        pack, about={"noise": np.random.default_rng(0).bytes(2 << 20).hex()}
    )
    with pytest.raises(CapReachedError, match="codec pack"):
        recode(store, "linear", 2, heavy)
    assert store.meta.codec == "fast"
    recode(store, "linear", 2, pack)
    assert store.stats().file_bytes <= 2 << 20
