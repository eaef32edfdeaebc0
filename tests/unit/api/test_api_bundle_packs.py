"""Codec packs travel with the records that need them, and come in with a genuine one alone."""

import dataclasses
import hashlib
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import zstandard

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.codec_packs import CodecPacks, keep_within_cap
from kvpacket_store.api.doctor import examine
from kvpacket_store.api.recode import recode
from kvpacket_store.bundle.members import INDEX, comment_of, make_info
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import ModelError, ReadOnlyError
from kvpacket_store.types import Document

DOCS = [Document(name, f"The {name} flows to the sea. " * 3) for name in ("Rhine", "Elbe")]
OTHER = make_pack(PackShape(1, 1, 4, 1))


@pytest.fixture(params=[1, 2])
def source(request, new_store, pack):
    """A store of level linear, in one layer and in two."""
    store = new_store(codec="linear", layers=request.param, kv_dtype="bf16", codec_pack=pack)
    store.ingest(DOCS)
    return store


def answer(store):
    options = {"max_new_tokens": 6, "ignore_eos": True}
    found = Engine(store).generate("Where to?", documents=["Rhine", "Elbe"], **options)
    return found.token_ids, found.fallbacks


def pack_files(store):
    return sorted(path.name for path in (store.path / "codec-packs").glob("*"))


def test_a_store_without_the_pack_gets_it_with_the_documents(source, new_store, tmp_path, pack):
    report = source.export_bundle(tmp_path / "b.kvpb")
    assert (report.packets, report.codec_packs, report.missing_codec_packs) == (2, 1, [])
    target = new_store(name="target.kvps", kv_dtype="bf16")
    assert pack_files(target) == []
    report = target.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, report.errors) == (2, [])
    assert pack_files(target) == [f"{pack.digest}.kvc"]
    assert CodecPacks(target.path).problem(pack.digest) is None
    assert answer(target) == answer(source)
    assert target.verify(deep=True, recompute=2).damaged == []
    assert target.meta.codec == "fast"  # what is new is encoded as before


def test_the_same_documents_give_the_same_bytes(source, tmp_path):
    for name in "ab":
        source.export_bundle(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_pack_stands_before_the_first_record_that_names_it(source, tmp_path, pack):
    source.export_bundle(tmp_path / "b.kvpb")
    names = zipfile.ZipFile(tmp_path / "b.kvpb").namelist()
    first = next(i for i, name in enumerate(names) if name.endswith(".kvr"))
    assert names[first - 1] == f"packs/{pack.digest}.kvc"
    assert sum(name.endswith(".kvc") for name in names) == 1


def spoilt(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "forge",
    [spoilt, lambda data: data[:-9], lambda data: b"", lambda data: OTHER.to_bytes()],
    ids=["spoilt", "cut", "empty", "another"],
)
def test_a_forged_pack_brings_nothing_in(source, new_store, tmp_path, monkeypatch, pack, forge):
    true_bytes = pack.to_bytes()
    monkeypatch.setattr(CodecPacks, "to_bytes", lambda self, digest: forge(true_bytes))
    source.export_bundle(tmp_path / "b.kvpb")
    target = new_store(name="target.kvps", kv_dtype="bf16")
    report = target.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, len(report.errors)) == (0, 2)
    assert all("codec pack" in failure.error for failure in report.errors)
    assert pack_files(target) == []


def test_a_record_that_is_not_genuine_brings_no_pack_in(source, new_store, tmp_path):
    source.export_bundle(tmp_path / "b.kvpb")
    _swap_records(tmp_path / "b.kvpb")
    target = new_store(name="target.kvps", kv_dtype="bf16")
    report = target.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, len(report.errors)) == (0, 2)
    assert pack_files(target) == []


def _swap_records(path):
    """Give each packet the other's records."""

    def change(members):
        for suffix in (".kvr", ".kve"):
            names = [name for name in members if name.endswith(suffix)]
            found = [members[name] for name in reversed(names)]
            members |= dict(zip(names, found, strict=True))

    _rewrite(path, change)


def _rewrite(path, change):
    """Change a bundle's members, and seal it anew."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist() if name != INDEX}
    change(members)
    index = "".join(
        f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in members.items()
    ).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, data in [*members.items(), (INDEX, index)]:
            new.writestr(make_info(name), data)
        new.comment = comment_of(hashlib.sha256(index).hexdigest())


def test_a_pack_that_the_cap_leaves_no_room_for_is_told_by_document(new_store, tmp_path, pack):
    noise = np.random.default_rng(0).bytes(3 << 20).hex()
    heavy = dataclasses.replace(pack, about={"noise": noise})
    store = new_store(kv_dtype="bf16")
    store.ingest(DOCS[:1])
    recode(store, "linear", pack=heavy)
    store.packets.change_codec("fast", 1, None)
    store.ingest(DOCS[1:])
    store.export_bundle(tmp_path / "b.kvpb")
    target = new_store(name="target.kvps", kv_dtype="bf16", max_bytes=2 << 20)
    report = target.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, [failure.id for failure in report.errors]) == (1, ["Rhine"])
    assert "leaves no room for the codec pack" in report.errors[0].error
    assert ([found.id for found in target.list().documents], pack_files(target)) == (["Elbe"], [])


def test_the_cap_counts_a_pack_that_is_replaced_once(new_store, tmp_path, pack):
    noise = np.random.default_rng(0).bytes(3 << 20).hex()
    heavy = dataclasses.replace(pack, about={"noise": noise})
    size = len(heavy.to_bytes())
    store = new_store(kv_dtype="bf16", max_bytes=2 * size - 1)
    path = keep_within_cap(store, heavy)
    path.write_bytes(bytes(size))
    assert CodecPacks(store.path).problem(heavy.digest) is not None
    keep_within_cap(store, heavy)
    assert CodecPacks(store.path).problem(heavy.digest) is None


def test_an_import_into_a_store_that_is_only_read_writes_nothing(
    source, new_store, tmp_path, tiny_model, word_embedder
):
    source.export_bundle(tmp_path / "b.kvpb")
    new_store(name="target.kvps", kv_dtype="bf16").close()
    with Store.open(
        tmp_path / "target.kvps", read_only=True, model=tiny_model("llama"), embedder=word_embedder
    ) as target:
        with pytest.raises(ReadOnlyError):
            target.import_bundle(tmp_path / "b.kvpb")
        assert pack_files(target) == []


def test_an_import_brings_back_a_lost_pack_of_packets_that_are_there(source, tmp_path, pack):
    source.export_bundle(tmp_path / "b.kvpb")
    before = answer(source)
    file = source.path / "codec-packs" / f"{pack.digest}.kvc"
    for loss in (file.unlink, lambda: file.write_bytes(b"x")):
        loss()
        source.codec_packs._known.clear()
        assert source.verify(deep=True).damaged
        report = source.import_bundle(tmp_path / "b.kvpb")
        assert (report.unchanged, report.errors) == (2, [])
        assert source.verify(deep=True).damaged == []
    assert answer(source) == before


def test_a_pack_that_ships_is_taken_before_that_of_the_bundle(
    source, new_store, tmp_path, pack, monkeypatch
):
    monkeypatch.setattr(CodecPacks, "to_bytes", lambda self, digest: b"spoilt")
    source.export_bundle(tmp_path / "b.kvpb")
    monkeypatch.setattr("kvpacket_store.api.codec_packs.installed_packs", lambda: (pack,))
    target = new_store(name="target.kvps", kv_dtype="bf16")
    report = target.import_bundle(tmp_path / "b.kvpb")
    assert (report.added, report.errors, pack_files(target)) == (2, [], [])


def test_a_pack_of_zeros_is_not_unpacked(source, new_store, tmp_path, pack):
    """It is 33 MB in 3 kB; the store's own shape bounds what is unpacked at all."""
    source.export_bundle(tmp_path / "b.kvpb")
    contents = pack._contents() + bytes(33 << 20)
    packed = zstandard.ZstdCompressor().compress(contents)
    bomb = struct.pack("<8sHI", b"\x89KVC\r\n\x1a\n", 1, len(contents)) + packed

    def change(members):
        for name in [name for name in members if name.endswith(".kvc")]:
            members[name] = bomb

    _rewrite(tmp_path / "b.kvpb", change)
    target = new_store(name="target.kvps", kv_dtype="bf16")
    tracemalloc.start()
    report = target.import_bundle(tmp_path / "b.kvpb")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (report.added, len(report.errors)) == (0, 2)
    assert peak_bytes < 24 << 20
    assert len(target.codec_packs._known) == 0


def test_few_packs_are_held_at_a_time(tmp_path):
    packs = CodecPacks(tmp_path)
    made = [make_pack(PackShape(1, 1, 4, 1), seed=seed) for seed in range(7)]
    for one in made:
        packs.keep(one)
    assert len(packs._known) < len(made)
    assert all(packs.find(one.digest).digest == one.digest for one in made)


def test_doctor_names_a_lost_pack_that_packets_of_another_level_need(
    source, new_store, tmp_path, pack, monkeypatch, word_embedder
):
    def no_model(name):
        raise ModelError("not here")

    monkeypatch.setattr("kvpacket_store.models.load_model", no_model)
    monkeypatch.setattr("kvpacket_store.retrieve.MiniLMEmbedder", lambda: word_embedder)
    source.export_bundle(tmp_path / "b.kvpb")
    target = new_store(name="target.kvps", kv_dtype="bf16")
    target.import_bundle(tmp_path / "b.kvpb")
    target.close()
    [check] = [check for check in examine(target.path) if check.name == "codec pack"]
    assert check.ok
    (target.path / "codec-packs" / f"{pack.digest}.kvc").unlink()
    [check] = [check for check in examine(target.path) if check.name == "codec pack"]
    assert (check.ok, check.exit_code) == (False, 4)
    assert pack.digest[:12] in check.detail
