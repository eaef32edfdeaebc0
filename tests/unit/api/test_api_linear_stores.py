"""Which stores of level ``linear`` there can be: layers, packs, and what is refused."""

import dataclasses

import pytest

from kvpacket_store.codec import info, named_pack
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import (
    CodecError,
    LevelUnavailableError,
    UsageError,
)
from kvpacket_store.types import Document


def test_other_levels_name_no_pack(new_store):
    store = new_store()
    store.ingest([Document("rhine", "The Rhine rises in the Alps. " * 8)])
    record = store.packets.read_record("default", store.show("rhine")["packets"][0]["packet_key"])
    assert info(record).pack is named_pack(record) is None


@pytest.mark.parametrize("layers", [0, 3, "2", True])
def test_so_many_layers_there_are_not(new_store, pack_of, tmp_path, layers):
    with pytest.raises(UsageError, match="1 or 2 layers"):
        new_store(codec="linear", layers=layers, kv_dtype="bf16", codec_pack=pack_of())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("codec", ["raw", "fast", "spec"])
def test_other_levels_have_one_layer(new_store, tmp_path, codec):
    with pytest.raises(UsageError, match="1 layers"):
        new_store(codec=codec, layers=2)
    assert list(tmp_path.iterdir()) == []


def test_without_a_pack_the_remedy_is_named(new_store, tmp_path):
    with pytest.raises(LevelUnavailableError, match="kvps codec train"):
        new_store(codec="linear")
    assert list(tmp_path.iterdir()) == []


def test_the_shipped_pack_of_the_model_is_taken(new_store, pack_of, monkeypatch):
    other = pack_of(weights="0" * 64)
    for room in ("codec_choice", "codec_packs"):
        monkeypatch.setattr(
            f"kvpacket_store.api.{room}.installed_packs", lambda: (other, pack_of())
        )
    store = new_store(codec="linear", kv_dtype="bf16")
    assert store.codec_pack.digest == pack_of().digest
    with pytest.raises(LevelUnavailableError, match="at fp16"):
        new_store(name="other.kvps", codec="linear", kv_dtype="fp16")


def test_a_pack_of_something_else_is_refused(new_store, pack_of, tmp_path):
    wide = make_pack(PackShape(4, 2, 8, 2))
    for pack, reason in [
        (pack_of(weights="0" * 64), "another model"),
        (pack_of("fp16"), "for fp16"),
        (dataclasses.replace(wide, weights=pack_of().weights), "heads and dimensions"),
    ]:
        with pytest.raises(UsageError, match=reason):
            new_store(codec="linear", kv_dtype="bf16", codec_pack=pack)
    with pytest.raises(UsageError, match="takes no codec pack"):
        new_store(codec="fast", codec_pack=pack_of())
    assert list(tmp_path.iterdir()) == []


def test_a_pack_may_be_a_file(new_store, pack_of, tmp_path):
    path = tmp_path / "mine.kvc"
    with pytest.raises(UsageError, match=r"mine\.kvc"):
        new_store(codec="linear", kv_dtype="bf16", codec_pack=path)
    path.write_bytes(pack_of().to_bytes())
    store = new_store(codec="linear", kv_dtype="bf16", codec_pack=str(path))
    assert store.codec_pack.digest == pack_of().digest
    path.write_bytes(b"something else")
    with pytest.raises(CodecError):
        new_store(name="other.kvps", codec="linear", kv_dtype="bf16", codec_pack=path)
