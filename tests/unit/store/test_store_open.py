import dataclasses
import os
import shutil
import stat

import lmdb
import pytest

from kvpacket_store.errors import (
    NotFoundError,
    StoreCorruptError,
    StoreError,
    UnsupportedFormatError,
    UsageError,
)
from kvpacket_store.store import PacketStore, StoreMeta, registry, rows
from kvpacket_store.store.schema import META_STORE, Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

A = make_record("a")


def describe(path, behind_its_back, values):
    row = rows.pack(rows.json_bytes(values))
    behind_its_back(path, lambda txn, tables: txn.put(META_STORE, row, db=tables[Table.META]))


def test_the_description_lasts(tmp_path):
    meta = make_meta(
        adapter="mix", adapter_digest="a" * 64, rope=({"name": "full"},), max_bytes=1 << 30
    )
    with PacketStore.create(tmp_path / "s.kvps", meta) as store:
        assert store.meta == meta
    with PacketStore.open(tmp_path / "s.kvps") as store:
        assert store.meta == meta
        assert store.path == tmp_path / "s.kvps"


def test_a_store_is_made_in_an_empty_folder_only(tmp_path):
    PacketStore.create(tmp_path, make_meta()).close()
    with pytest.raises(UsageError, match="not empty"):
        PacketStore.create(tmp_path, make_meta())
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        PacketStore.create(folder, make_meta())
    with pytest.raises(UsageError, match="not empty"):
        PacketStore.create(folder / "notes.txt", make_meta())
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert not list(tmp_path.glob(".*"))


def test_folders_above_are_made(tmp_path):
    PacketStore.create(tmp_path / "a" / "b.kvps", make_meta()).close()
    PacketStore.open(tmp_path / "a" / "b.kvps").close()


def test_a_store_that_could_not_be_finished_is_not_there(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("power cut")

    monkeypatch.setattr("kvpacket_store.store.store._move_into_place", fail)
    with pytest.raises(StoreError, match="power cut"):
        PacketStore.create(tmp_path / "s.kvps", make_meta())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "folder", "file"])
def test_where_there_is_no_store_none_is_found(tmp_path, content):
    path = tmp_path / "s.kvps"
    if content == "folder":
        path.mkdir()
    if content == "file":
        path.write_text("x")
    with pytest.raises(NotFoundError, match="no store") as caught:
        PacketStore.open(path)
    assert caught.value.exit_code == 1


def test_another_database_is_no_store(tmp_path):
    with lmdb.open(str(tmp_path / "other"), max_dbs=4) as env:
        env.open_db(b"theirs")
    with pytest.raises(NotFoundError, match="no store"):
        PacketStore.open(tmp_path / "other")


@pytest.mark.parametrize("num_bytes", [0, 100, 8191])
def test_a_file_cut_short_is_damage(tmp_path, num_bytes):
    PacketStore.create(tmp_path / "s.kvps", make_meta()).close()
    os.truncate(tmp_path / "s.kvps" / "data.mdb", num_bytes)
    with pytest.raises(StoreCorruptError, match="restore it from a copy"):
        PacketStore.open(tmp_path / "s.kvps")


def test_a_file_of_something_else_is_damage(tmp_path):
    PacketStore.create(tmp_path / "s.kvps", make_meta()).close()
    (tmp_path / "s.kvps" / "data.mdb").write_bytes(b"no database " * 10_000)
    with pytest.raises(StoreCorruptError, match="restore it from a copy"):
        PacketStore.open(tmp_path / "s.kvps")


def test_a_later_format_is_refused(tmp_path, behind_its_back):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    describe(path, behind_its_back, make_meta().to_dict() | {"format_version": 2, "news": 1})
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        PacketStore.open(path)


@pytest.mark.parametrize(
    "change", [{"format_version": 0}, {"format_version": "1"}, {"news": 1}, {"codec": None}]
)
def test_a_description_that_is_not_understood_is_refused(tmp_path, behind_its_back, change):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    values = make_meta().to_dict() | change
    if change == {"codec": None}:
        del values["codec"]
    describe(path, behind_its_back, values)
    with pytest.raises(StoreCorruptError):
        PacketStore.open(path)


def test_a_spoilt_description_is_damage(tmp_path, behind_its_back):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    behind_its_back(path, lambda txn, tables: txn.put(META_STORE, b"x" * 99, db=tables[Table.META]))
    before = dict(registry._environments)  # other tests may hold stores of their own
    with pytest.raises(StoreCorruptError, match="restore"):
        PacketStore.open(path)
    assert registry._environments == before  # a failed opening leaves nothing open


def test_a_store_too_small_to_hold_anything_is_refused():
    with pytest.raises(UsageError, match="max_bytes"):
        make_meta(max_bytes=1000)
    assert StoreMeta.from_dict(make_meta().to_dict()) == make_meta()


def test_handles_of_one_process_share_the_database(tmp_path):
    path = tmp_path / "s.kvps"
    link = tmp_path / "link.kvps"
    before = dict(registry._environments)
    with PacketStore.create(path, make_meta()) as one:
        link.symlink_to(path)
        with PacketStore.open(link) as two:
            assert one._environment is two._environment
            two.put_documents("n", [make_write("d", [A])])
        assert one.read_record("n", A.packet_key) == A.record
    assert registry._environments == before


def test_a_closed_store_says_so(tmp_path):
    store = PacketStore.create(tmp_path / "s.kvps", make_meta())
    store.close()
    store.close()
    with pytest.raises(UsageError, match="closed"):
        store.count()
    with pytest.raises(UsageError, match="closed"):
        store.put_documents("n", [make_write("d", [A])])


def test_a_store_made_again_in_its_place_is_another_one(tmp_path):
    path = tmp_path / "s.kvps"
    with PacketStore.create(path, make_meta()) as old:
        old.put_documents("n", [make_write("d", [A])])
        shutil.rmtree(path)
        with PacketStore.create(path, make_meta(model="other")) as new:
            assert new.count() == 0
            assert new.meta.model == "other"


def test_only_the_owner_may_read_it(tmp_path):
    PacketStore.create(tmp_path / "s.kvps", make_meta()).close()
    for path in (tmp_path / "s.kvps", *(tmp_path / "s.kvps").iterdir()):
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_commits_are_synced_and_never_written_through_the_map(store):
    flags = store._environment._handle().flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["writemap"]
    assert not flags["map_async"]
    assert store._environment._handle().info()["max_readers"] == 2048


def test_a_folder_is_furnished_before_it_is_there(tmp_path):
    path = tmp_path / "s.kvps"

    def furnish(folder):
        assert not path.exists()
        (folder / "adapter").write_text("soft")

    PacketStore.create(path, make_meta(), furnish=furnish).close()
    assert (path / "adapter").read_text() == "soft"


def test_a_folder_that_cannot_be_furnished_is_not_there(tmp_path):
    def fail(folder):
        raise OSError("no adapter")

    with pytest.raises(StoreError, match="no adapter"):
        PacketStore.create(tmp_path / "s.kvps", make_meta(), furnish=fail)
    assert list(tmp_path.iterdir()) == []


def test_the_codec_of_new_packets_can_change(store):
    with PacketStore.open(store.path) as other:
        store.change_codec("linear", 2, "a" * 64)
        assert (store.meta.codec, store.meta.layers, store.meta.codec_pack) == (
            "linear",
            2,
            "a" * 64,
        )
        assert other.meta.codec == "raw"
    with PacketStore.open(store.path) as again:
        assert again.meta == store.meta
        assert dataclasses.replace(again.meta, codec="raw", layers=1, codec_pack=None) == (
            make_meta()
        )
