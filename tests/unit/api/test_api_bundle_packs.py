"""Codec packs travel with the records that need them, and come in with a genuine one alone."""

import dataclasses
import hashlib
import zipfile

import numpy as np
import pytest

from kvpacket_store.api import Engine
from kvpacket_store.api.codec_packs import CodecPacks
from kvpacket_store.bundle.members import INDEX, comment_of, make_info
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import CapReachedError
from kvpacket_store.types import Document

DOCS = [Document(name, f"The {name} flows to the sea. " * 3) for name in ("Rhine", "Elbe")]
OTHER = make_pack(PackShape(1, 1, 4, 1))


@pytest.fixture
def pack(model):
    layout = model.layout
    shape = PackShape(layout.num_layers, layout.num_kv_heads, layout.head_dim, 2)
    return dataclasses.replace(make_pack(shape, "bf16"), weights=model.fingerprint.weights)


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
    assert (report.packets, report.codec_packs, report.missing_codec_packs) == (2, 1, 0)
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
    """Give each packet the other's records, and seal the bundle anew."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist() if name != INDEX}
    for suffix in (".kvr", ".kve"):
        names = [name for name in members if name.endswith(suffix)]
        found = [members[name] for name in reversed(names)]
        members |= dict(zip(names, found, strict=True))
    index = "".join(
        f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in members.items()
    ).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, data in [*members.items(), (INDEX, index)]:
            new.writestr(make_info(name), data)
        new.comment = comment_of(hashlib.sha256(index).hexdigest())


def test_a_pack_that_the_cap_leaves_no_room_for_is_told(new_store, tmp_path, pack):
    noise = np.random.default_rng(0).bytes(3 << 20).hex()
    heavy = dataclasses.replace(pack, about={"noise": noise})
    store = new_store(codec="linear", kv_dtype="bf16", codec_pack=heavy)
    store.ingest(DOCS[:1])
    store.export_bundle(tmp_path / "b.kvpb")
    target = new_store(name="target.kvps", kv_dtype="bf16", max_bytes=2 << 20)
    with pytest.raises(CapReachedError, match="codec pack"):
        target.import_bundle(tmp_path / "b.kvpb")
    assert (target.list().documents, pack_files(target)) == ([], [])
