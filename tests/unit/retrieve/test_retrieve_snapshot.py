"""Promise: a snapshot is used when it is intact and the one asked for, and rebuilt otherwise."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest

from kvpacket_store.retrieve import PacketIndex
from kvpacket_store.retrieve.snapshot import SnapshotKey, load_snapshot, save_snapshot

KEY = SnapshotKey("ns", 7, "e" * 64, 16)


@pytest.fixture
def index(source, ingest):
    ingest("ns", alpha="one", beta="two", gamma="three")
    source.put_raw("ns", "ünï \ud800", 4, "key", source.namespaces["ns"]["alpha", 0][1])
    return PacketIndex.build(source, "ns", 16)


@pytest.fixture
def saved(tmp_path, index):
    save_snapshot(tmp_path, KEY, index)
    return KEY.path_in(tmp_path)


def test_what_was_saved_answers_alike(tmp_path, index, saved, embedder):
    loaded = load_snapshot(tmp_path, KEY)
    query = embedder.embed(["two"])[0]
    assert loaded.search(query, 9) == index.search(query, 9)
    assert len(loaded.search(query, 9)) == 4


def test_an_empty_index_can_be_saved(tmp_path, source):
    save_snapshot(tmp_path, KEY, PacketIndex.build(source, "nobody", 16))
    assert len(load_snapshot(tmp_path, KEY)) == 0


def test_no_file_is_no_snapshot(tmp_path):
    assert load_snapshot(tmp_path, KEY) is None
    assert load_snapshot(tmp_path / "absent", KEY) is None


@pytest.mark.parametrize(
    "other",
    [
        {"generation": 6},
        {"generation": 8},
        {"embedder_digest": "f" * 64},
        {"dimension": 8},
        {"namespace": "south"},
    ],
)
def test_another_key_finds_nothing(tmp_path, saved, other):
    asked = replace(KEY, **other)
    saved.rename(asked.path_in(tmp_path))
    assert load_snapshot(tmp_path, asked) is None


def test_any_flipped_byte_is_noticed(tmp_path, saved):
    intact = saved.read_bytes()
    for place in range(len(intact)):
        damaged = bytearray(intact)
        damaged[place] ^= 1 << (place % 8)
        saved.write_bytes(damaged)
        assert load_snapshot(tmp_path, KEY) is None, place
    saved.write_bytes(intact)
    assert load_snapshot(tmp_path, KEY) is not None


def test_any_cut_or_growth_is_noticed(tmp_path, saved):
    intact = saved.read_bytes()
    for length in range(len(intact)):
        saved.write_bytes(intact[:length])
        assert load_snapshot(tmp_path, KEY) is None, length
    saved.write_bytes(intact + b"\0")
    assert load_snapshot(tmp_path, KEY) is None


def test_damage_is_logged(tmp_path, saved, caplog):
    saved.write_bytes(b"junk")
    assert load_snapshot(tmp_path, KEY) is None
    assert "'ns': snapshot is damaged" in caplog.text


def test_a_folder_in_its_place_is_no_snapshot(tmp_path, caplog):
    KEY.path_in(tmp_path).mkdir()
    assert load_snapshot(tmp_path, KEY) is None
    assert "not readable" in caplog.text


@pytest.mark.parametrize("namespace", ["../../etc", "a/b", "", ".", "x" * 5000, "\ud800", "a\0b"])
def test_a_namespace_is_never_a_path(tmp_path, index, namespace):
    key = replace(KEY, namespace=namespace)
    folder = tmp_path / "snapshots"
    save_snapshot(folder, key, index)
    assert [path.name for path in tmp_path.iterdir()] == ["snapshots"]
    assert len(list(folder.iterdir())) == 1
    assert load_snapshot(folder, key) is not None


def test_saving_again_replaces_and_leaves_nothing_beside(tmp_path, index, saved):
    (tmp_path / f"{saved.stem}.killed.tmp").write_bytes(b"half of it")
    (tmp_path / "someone-elses.tmp").write_bytes(b"")
    save_snapshot(tmp_path, replace(KEY, generation=8), index)
    assert load_snapshot(tmp_path, KEY) is None
    assert load_snapshot(tmp_path, replace(KEY, generation=8)) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == [saved.name, "someone-elses.tmp"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_is_logged_and_keeps_the_old_file(
    tmp_path, index, saved, monkeypatch, caplog, call
):
    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        save_snapshot(tmp_path, replace(KEY, generation=8), index)
    assert "No space left" in caplog.text
    assert saved.read_bytes() == before
    assert list(tmp_path.iterdir()) == [saved]


def test_the_file_is_the_owners_alone(saved):
    assert saved.stat().st_mode & 0o077 == 0


def test_vectors_of_any_count_survive(tmp_path):
    from types import SimpleNamespace

    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((4097, 16)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [(f"d{n}", n, f"k{n}", vector.tobytes()) for n, vector in enumerate(vectors)]
    source = SimpleNamespace(iter_embeddings=lambda namespace: iter(rows))
    save_snapshot(tmp_path, KEY, PacketIndex.build(source, "ns", 16))
    loaded = load_snapshot(tmp_path, KEY)
    assert [loaded.search(vectors[n], 1)[0].packet_key for n in (0, 4096)] == ["k0", "k4096"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"ids_bytes"', b'"ids_bytez"'),
        (b'{"namespace"', b'["namespace"'),
        (b'"packet_keys":["', b'"packet_keys":[7,"'),
        (b'"document_of_row":[0,', b'"document_of_row":[9,'),
        (b'"segment_indices":[0,', b'"segment_indices":[0,0,'),
        (b'"segment_indices":[0,', b'"segment_indices":[{},'),
        (b"IxFI", b"IxF2"),
        (b"IxFI\x10\x00\x00\x00\x04", b"IxFI\x10\x00\x00\x00\xff"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00", b"\x40\x00\x00\x00\x00\x00\x00\x40"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_digest_that_holds_makes_nothing_true(tmp_path, saved, old, new):
    """Whoever can write the file can seal it; faiss would allocate whatever its bytes ask for."""
    content = saved.read_bytes()
    body = content[40:]
    assert body.count(old) == 1
    body = body.replace(old, new)
    saved.write_bytes(content[:8] + hashlib.sha256(body).digest() + body)
    assert load_snapshot(tmp_path, KEY) is None
