"""Every bound is ours, and holds before anything is allocated."""

import dataclasses
import json
import tracemalloc

import pytest

from kvpacket_store.bundle import BundleLimits, read_bundle, write_bundle
from kvpacket_store.errors import BundleError, UsageError


def read_all(path, **limits):
    with read_bundle(path, limits=BundleLimits(**limits)) as bundle:
        for _, packets, _ in bundle.documents():
            dict(packets)


# what the bundle in the fixture has, at most
NEEDS = {
    "max_members": 19,
    "max_documents": 3,
    "max_segments": 3,
    "max_text_bytes": 303,
    "max_embedding_bytes": 48,
    "max_record_bytes": 70,
}


def test_every_limit_has_a_test():
    tested = {*NEEDS, "max_bytes", "max_json_bytes", "max_json_values", "max_codec_pack_bytes"}
    assert {field.name for field in dataclasses.fields(BundleLimits)} == tested


@pytest.mark.parametrize("name", NEEDS)
def test_a_bundle_at_its_limit_is_read_and_one_beyond_is_refused(bundle_path, name):
    read_all(bundle_path, **{name: NEEDS[name]})
    with pytest.raises(BundleError, match=r"limit|max_|segments"):
        read_all(bundle_path, **{name: NEEDS[name] - 1})


def test_a_codec_pack_is_bounded_too(small_bundle, reseal):
    def change(members):
        members["packs/" + "0" * 64 + ".kvc"] = bytes(40)

    reseal(small_bundle, change)
    with read_bundle(small_bundle, limits=BundleLimits(max_codec_pack_bytes=40)) as bundle:
        assert bundle.codec_pack("0" * 64) == bytes(40)
        assert bundle.codec_packs == ["0" * 64]
        with pytest.raises(BundleError, match="no member"):
            bundle.codec_pack("1" * 64)
    with pytest.raises(BundleError, match="limits"):
        read_bundle(small_bundle, limits=BundleLimits(max_codec_pack_bytes=39))


def test_the_file_and_its_json(bundle_path):
    num_bytes = bundle_path.stat().st_size
    read_all(bundle_path, max_bytes=num_bytes)
    with pytest.raises(BundleError, match="max_bytes"):
        read_all(bundle_path, max_bytes=num_bytes - 1)
    with pytest.raises(BundleError, match="limits"):
        read_all(bundle_path, max_json_bytes=100)
    with pytest.raises(BundleError, match="max_json_values"):
        read_all(bundle_path, max_json_values=3)


def test_many_values_in_few_bytes_are_refused_before_they_are_parsed(small_bundle, reseal):
    def change(members):
        rows = b"[]," * 3_000_000
        members["documents/00000000.json"] = b'{"metadata":[' + rows[:-1] + b"]}"

    reseal(small_bundle, change)
    tracemalloc.start()
    with read_bundle(small_bundle) as bundle, pytest.raises(BundleError, match="max_json_values"):
        bundle.document(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000  # the member itself, and no more than that again


def test_what_could_not_be_read_is_not_written(source, tmp_path, monkeypatch):
    limits = BundleLimits(max_record_bytes=52)
    monkeypatch.setattr("kvpacket_store.bundle.writer.DEFAULT_LIMITS", limits)
    with pytest.raises(UsageError, match="more than a bundle may hold"):
        write_bundle(source, tmp_path / "x", namespace="n")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", [
    "documents/00000000.txt", "documents/00000000.json", "documents/00000001.json",
])  # fmt: skip
def test_documents_that_are_not_whole(bundle_path, reseal, name):
    with pytest.raises(BundleError, match=r"whole|parts"):
        read_bundle(reseal(bundle_path, lambda members: members.pop(name)))


def test_embeddings_of_no_document(bundle_path, reseal):
    def change(members):
        members["documents/00000003.f32"] = bytes(8)

    with pytest.raises(BundleError, match="parts of documents"):
        read_bundle(reseal(bundle_path, change))


def test_descriptions_keep_to_json(bundle_path):
    with read_bundle(bundle_path) as bundle:
        text = bundle.members.read("documents/00000002.json")
    assert json.loads(text)["id"] == "é \ud800"
    assert text.isascii()
