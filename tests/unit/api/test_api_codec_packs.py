"""A codec pack that is lost costs time, never truth, and is named; one that ships takes over."""

import dataclasses

import numpy as np
import pytest

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.codec_packs import CodecPacks
from kvpacket_store.api.doctor import examine
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.recode import recode
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import (
    CodecError,
    LevelUnavailableError,
    ModelError,
    StoreError,
    UsageError,
)
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta
from kvpacket_store.types import Document

DOCS = [Document(name, f"The {name} flows to the sea. " * 3) for name in ("Rhine", "Elbe")]
QUESTION = "Where does the Rhine flow?"
LONG = {"max_new_tokens": 6, "ignore_eos": True}
OTHER = make_pack(PackShape(1, 1, 4, 1))


def lose(file):
    file.unlink()


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


def spoil(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def empty(file):
    file.write_bytes(b"")


def swap(file):
    file.write_bytes(OTHER.to_bytes())


def a_folder(file):
    file.unlink()
    file.mkdir()


LOSSES = [lose, cut, spoil, empty, swap, a_folder]


@pytest.fixture
def after(new_store, pack, tiny_model, word_embedder):
    """A function: what happens to the pack's file → the store opened again, the answer before."""
    opened = []

    def make(loss):
        store = new_store(codec="linear", kv_dtype="bf16", codec_pack=pack)
        store.ingest(DOCS)
        answer = Engine(store).generate(QUESTION, documents=["Rhine", "Elbe"], **LONG)
        store.close()
        loss(store.path / "codec-packs" / f"{pack.digest}.kvc")
        opened.append(Store.open(store.path, model=tiny_model("llama"), embedder=word_embedder))
        return opened[-1], answer.token_ids

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def shipped(monkeypatch, pack):
    """The pack is one that ships with the package."""
    monkeypatch.setattr("kvpacket_store.api.codec_packs.installed_packs", lambda: (OTHER, pack))


@pytest.fixture
def found_by_doctor(monkeypatch, word_embedder):
    """A function: store → the check of its codec pack; the model is none that could be loaded."""

    def no_model(name):
        raise ModelError("not here")

    def find(store):
        [check] = [check for check in examine(store.path) if check.name == "codec pack"]
        return check

    monkeypatch.setattr("kvpacket_store.models.load_model", no_model)
    monkeypatch.setattr("kvpacket_store.retrieve.MiniLMEmbedder", lambda: word_embedder)
    return find


@pytest.mark.parametrize("loss", LOSSES)
def test_packets_of_a_lost_pack_are_prefilled_again(after, loss):
    store, expected = after(loss)
    answer = Engine(store).generate(QUESTION, documents=["Rhine", "Elbe"], **LONG)
    assert answer.token_ids == expected
    assert len(answer.fallbacks) == 2
    assert all("codec pack" in fallback.reason for fallback in answer.fallbacks)
    with pytest.raises(CodecError, match="codec pack"):
        store.packet("Rhine")
    key = store.show("Rhine")["packets"][0]["packet_key"]
    with pytest.raises(CodecError, match="codec pack"):
        PacketLoader(store).base("default", key)
    with pytest.raises(LevelUnavailableError, match="kvps codec recode"):
        _ = store.codec_pack


@pytest.mark.parametrize("loss", [lose, spoil])
def test_a_lost_pack_is_named_and_a_change_of_level_mends_all(after, found_by_doctor, loss):
    store, expected = after(loss)
    check = found_by_doctor(store)
    assert (check.ok, check.level, check.exit_code) == (False, "error", 4)
    assert "codec recode" in check.remedy
    [found] = store.verify().damaged
    assert found.packet_key is None
    assert "codec pack" in found.reason
    report = store.verify(deep=True, repair=True)
    assert len(report.damaged) == len(report.remaining) == 3  # nothing to encode with
    with pytest.raises(LevelUnavailableError):
        store.ingest([Document("Main", "The Main flows into the Rhine.")])
    changed = recode(store, "fast")
    assert (changed.recoded, len(changed.skipped)) == (0, 2)
    report = store.verify(deep=True, repair=True)
    assert (len(report.damaged), report.repaired, report.remaining) == (2, 2, [])
    assert found_by_doctor(store).ok
    answer = Engine(store).generate(QUESTION, documents=["Rhine", "Elbe"], **LONG)
    assert (answer.token_ids, answer.fallbacks) == (expected, [])


@pytest.mark.parametrize("loss", LOSSES[:-1])
def test_the_shipped_pack_serves_and_is_put_back(after, shipped, pack, found_by_doctor, loss):
    store, expected = after(loss)
    answer = Engine(store).generate(QUESTION, documents=["Rhine", "Elbe"], **LONG)
    assert (answer.token_ids, answer.fallbacks) == (expected, [])
    check = found_by_doctor(store)
    assert (check.ok, check.level, check.exit_code) == (False, "warning", 0)
    report = store.verify(deep=True, repair=True)
    assert ([f.packet_key for f in report.damaged], report.repaired) == ([None], 1)
    assert found_by_doctor(store).ok
    assert CodecPacks(store.path).problem(pack.digest) is None


def test_a_repair_puts_no_pack_back_beyond_the_cap(
    new_store, pack, tiny_model, word_embedder, monkeypatch
):
    heavy = dataclasses.replace(
        pack, about={"noise": np.random.default_rng(0).bytes(3 << 20).hex()}
    )
    store = new_store(kv_dtype="bf16", codec="linear", codec_pack=heavy, max_bytes=6 << 20)
    store.ingest(DOCS)
    store.close()
    (store.path / "codec-packs" / f"{heavy.digest}.kvc").unlink()
    monkeypatch.setattr("kvpacket_store.api.codec_packs.installed_packs", lambda: (heavy,))
    for max_bytes, is_back in ((2 << 20, False), (6 << 20, True)):
        with Store.open(store.path, model=tiny_model("llama"), embedder=word_embedder) as again:
            meta = dataclasses.replace(again.meta, max_bytes=max_bytes)
            monkeypatch.setattr(again.packets, "meta", meta)
            again.verify(deep=True, repair=True)
            assert (again.codec_packs.problem(heavy.digest) is None) is is_back
            assert (again.verify(deep=True).damaged == []) is is_back


def test_the_pack_of_another_level_before_still_reads_its_packets(
    after, pack, monkeypatch, found_by_doctor
):
    store, expected = after(lambda file: None)
    monkeypatch.setattr("kvpacket_store.api.recode._packet_keys", lambda store: iter(()))
    recode(store, "fast")
    assert store.codec_pack is None
    answer = Engine(store).generate(QUESTION, documents=["Rhine", "Elbe"], **LONG)
    assert (answer.token_ids, answer.fallbacks) == (expected, [])
    assert found_by_doctor(store).ok


def test_a_bundle_of_a_pack_that_is_not_here_says_so_by_document(after, new_store, tmp_path, pack):
    store, _ = after(lose)
    report = store.export_bundle(tmp_path / "b.kvpb")
    assert (report.packets, report.codec_packs) == (2, 0)
    assert report.missing_codec_packs == [pack.digest]
    other = new_store(name="other.kvps", kv_dtype="bf16")
    report = other.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, len(report.errors)) == (0, 2)
    assert all("neither in the store nor in the bundle" in f.error for f in report.errors)
    other.codec_packs.keep(pack)
    report = other.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, report.errors) == (2, [])
    assert other.verify(deep=True, recompute=2).damaged == []


def test_a_pack_that_cannot_be_kept_is_an_error_of_the_store(tmp_path, pack):
    (tmp_path / "codec-packs").write_text("in its place")
    with pytest.raises(StoreError):
        CodecPacks(tmp_path).keep(pack)


@pytest.mark.parametrize("digest", ["", "../" * 3 + "secret", "a" * 63, "A" * 64, "/etc/passwd"])
def test_a_digest_is_never_a_path(tmp_path, digest):
    with pytest.raises(LevelUnavailableError):
        CodecPacks(tmp_path).find(digest)


def test_a_pack_counts_against_the_cap(tmp_path, pack):
    def furnish(folder):
        CodecPacks(folder).keep(heavy)

    heavy = dataclasses.replace(pack, about={"noise": OTHER.matrices.tobytes().hex() * 300})
    size = len(heavy.to_bytes())
    assert size > 1000
    meta = make_meta(max_bytes=1 << 20)
    with PacketStore.create(tmp_path / "plain.kvps", meta) as plain:
        room_bytes = plain._environment.room_bytes
    with PacketStore.create(tmp_path / "s.kvps", meta, furnish=furnish) as store:
        assert room_bytes - store._environment.room_bytes >= size

    def fill(folder):
        (folder / "codec-packs").mkdir()
        (folder / "codec-packs" / "x.kvc").write_bytes(bytes(1 << 20))

    with pytest.raises(UsageError, match="too little"):
        PacketStore.create(tmp_path / "full.kvps", meta, furnish=fill)
