"""Whose packets a store takes: those of its own kind, field by field."""

import json

import pytest

from kvpacket_store.bundle import BundleIdentity, read_bundle, write_bundle
from kvpacket_store.errors import BundleError, ModelMismatchError

CHANGES = {
    "weights": {"weights": "0" * 64},
    "tokenizer": {"tokenizer": "0" * 64},
    "config": {"config": "0" * 64},
    "rope": {"rope": "0" * 64},
    "layout": {"num_layers": 2},
    "adapter": "0" * 64,
    "kv_dtype": "fp16",
    "recipe": "alone-2",
    "embedder": "0" * 64,
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_store_of_another_kind_takes_nothing(
    new_packet_store, source, bundle_path, field, imported
):
    value = CHANGES[field]
    if field in source.meta.fingerprint:
        change = {"fingerprint": {**source.meta.fingerprint, **value}}
    else:
        change = {"adapter_digest" if field == "adapter" else field: value}
    other = new_packet_store("other.kvps", **change)
    with pytest.raises(ModelMismatchError, match=f"its {field} differ"):
        imported(other, bundle_path)
    assert other.namespaces() == []


def test_several_fields_are_named(new_packet_store, bundle_path, imported):
    other = new_packet_store("other.kvps", kv_dtype="fp16", recipe="alone-2")
    with pytest.raises(ModelMismatchError, match="kv_dtype, recipe differ"):
        imported(other, bundle_path)


@pytest.mark.parametrize("field", ["weights", "tokenizer", "config", "rope"])
def test_a_field_that_both_lack_differs(new_packet_store, tmp_path, field, imported):
    fingerprint = {"weights": "a", "tokenizer": "b", "config": "c", "rope": "d"}
    del fingerprint[field]
    one = new_packet_store("one.kvps", fingerprint=fingerprint)
    write_bundle(one, tmp_path / "x", namespace="n")
    with pytest.raises(ModelMismatchError, match=f"its {field} differ"):
        imported(one, tmp_path / "x")


def test_chat_template_and_codec_level_decide_no_packet(
    new_packet_store, source, bundle_path, imported, counts
):
    other = new_packet_store(
        "other.kvps", fingerprint={**source.meta.fingerprint, "chat_template": "x"}, codec="fast"
    )
    assert counts(imported(other, bundle_path)) == (3, 0, 0, 0)


def test_the_identity_reads_back(source, bundle_path):
    with read_bundle(bundle_path) as bundle:
        assert bundle.identity == BundleIdentity.of(source.meta)
        assert bundle.identity.codec == "raw"


@pytest.mark.parametrize("spoil", [
    lambda head: head.pop("identity"),
    lambda head: head["identity"].pop("recipe"),
    lambda head: head["identity"].update(more="x"),
    lambda head: head["identity"].update(recipe=None),
    lambda head: head["identity"].update(layout=[]),
    lambda head: head["identity"]["fingerprint"].update(weights=1),
    lambda head: head.update(format="other"),
    lambda head: head.update(version=2),
    lambda head: head.update(more=1),
], ids=map(str, range(9)))  # fmt: skip
def test_a_head_that_cannot_be_right(bundle_path, reseal, spoil):
    def change(members):
        head = json.loads(members["bundle.json"])
        spoil(head)
        members["bundle.json"] = json.dumps(head).encode()

    with pytest.raises(BundleError):
        read_bundle(reseal(bundle_path, change))
