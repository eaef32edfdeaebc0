import contextlib
import os
import subprocess
import sys

import pytest

from kvpacket_store.errors import StoreFullError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

CAP_BYTES = 6 << 20


@pytest.fixture
def capped(tmp_path):
    meta = make_meta(max_bytes=CAP_BYTES)
    with PacketStore.create(tmp_path / "s.kvps", meta, map_bytes=1 << 20) as store:
        yield store


def fill(store, name, num_bytes=300_000):
    """Put documents, evicting none, until none goes in; return the records that did."""
    records = []
    while True:
        record = make_record(f"{name} {len(records)}", num_bytes)
        try:
            store.put_documents(
                "n", [make_write(f"{name} {len(records)}", [record])], keep_since_ms=0
            )
        except StoreFullError:
            return records
        records.append(record)
        assert store.stats().file_bytes <= CAP_BYTES


HOLD = """
import sys
from kvpacket_store.store import PacketStore

with PacketStore.open(sys.argv[1]) as store, store._environment.read():
    print("holding", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def old_reader(path):
    """Another process that keeps a snapshot of now."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"holding\n"
        yield
        child.stdin.close()


def test_the_folder_never_exceeds_its_cap(capped):
    records = fill(capped, "a")
    assert len(records) > 10
    assert all(capped.read_record("n", r.packet_key) == r.record for r in records)
    assert capped.count() == len(records)
    assert capped.check(deep=True) == []


def test_a_full_store_deletes_and_takes_in_again(capped):
    """Again and again, with records of other sizes: deleting itself needs pages."""
    for turn, num_bytes in enumerate((300_000, 70_000, 500_000, 5_000)):
        records = fill(capped, f"turn {turn}", num_bytes)
        assert records
        assert capped.stats().file_bytes <= CAP_BYTES
        for index in range(len(records)):
            capped.delete_document("n", f"turn {turn} {index}")
        assert capped.count() == 0
        assert capped.stats().live_bytes == 0
    assert capped.check(deep=True) == []


def test_a_full_store_deletes_even_beside_an_old_reader(capped):
    """The reader keeps every page that was ever freed from being used again."""
    with old_reader(capped.path):
        records = fill(capped, "large", 200_000)
        small = fill(capped, "small", 1)
        for index in range(5):
            capped.delete_document("n", f"large {index}")
        assert capped.stats().file_bytes <= CAP_BYTES
        with pytest.raises(StoreFullError):
            capped.put_documents("n", [make_write("d", [make_record("d", 200_000)])])
    assert capped.count() == len(records) + len(small) - 5
    assert capped.check(deep=True) == []
    fill(capped, "more")


def test_the_cap_holds_after_opening_again(capped):
    fill(capped, "a")
    capped.close()
    with PacketStore.open(capped.path) as store:
        assert fill(store, "b") == []
        assert store.stats().file_bytes <= CAP_BYTES


def test_a_document_larger_than_the_cap_is_refused_before_it_is_written(capped):
    before = capped.stats()
    with pytest.raises(StoreFullError, match="byte cap"):
        capped.put_documents("n", [make_write("d", [make_record("a", 2 * CAP_BYTES)])])
    assert capped.stats() == before


def write_beside(store, name, num_bytes):
    path = store.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(os.urandom(num_bytes))


def blocks(folder):
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def test_an_adapter_counts_against_the_cap(tmp_path):
    def furnish(folder):
        (folder / "adapter.safetensors").write_bytes(os.urandom(2 << 20))

    meta = make_meta(max_bytes=CAP_BYTES)
    with PacketStore.create(tmp_path / "s.kvps", meta, furnish=furnish) as store:
        assert fill(store, "a", 100_000)
        fill(store, "small", 1)
        assert blocks(store.path) <= CAP_BYTES


@pytest.mark.parametrize("adapter_bytes", [CAP_BYTES - (600 << 10), CAP_BYTES, 2 * CAP_BYTES])
def test_a_cap_that_the_adapter_alone_reaches_is_refused(tmp_path, adapter_bytes):
    def furnish(folder):
        (folder / "adapter.safetensors").write_bytes(bytes(adapter_bytes))

    meta = make_meta(max_bytes=CAP_BYTES)
    with pytest.raises(UsageError, match="max_bytes"):
        PacketStore.create(tmp_path / "s.kvps", meta, furnish=furnish)
    assert list(tmp_path.iterdir()) == []


def test_a_full_store_can_keep_an_index(capped):
    fill(capped, "a")
    fill(capped, "small", 1)
    spare_bytes = capped.spare_bytes()
    assert spare_bytes > CAP_BYTES // 32
    write_beside(capped, "index/n.index", spare_bytes)
    assert capped.spare_bytes() == 0
    for index in range(5):  # at the cap, deletions and writes alternate
        capped.delete_document("n", f"a {index}")
        fill(capped, f"again {index}", 50_000)
        assert blocks(capped.path) <= CAP_BYTES
    (capped.path / "index/n.index").unlink()
    assert capped.spare_bytes() > CAP_BYTES // 32


def test_files_that_come_later_count_too(capped):
    records = fill(capped, "a")
    for index in range(len(records)):
        capped.delete_document("n", f"a {index}")
    capped.compact()
    write_beside(capped, "index/n.index", 2 << 20)  # more than what is kept for it
    assert capped.spare_bytes() == 0
    fewer = fill(capped, "b")
    assert 0 < len(fewer) < len(records)
    assert blocks(capped.path) <= CAP_BYTES
    capped.close()
    with PacketStore.open(capped.path) as store:
        fill(store, "c", 1000)
        assert blocks(store.path) <= CAP_BYTES


def test_a_folder_that_others_have_filled_can_be_read_and_emptied(capped):
    records = fill(capped, "a")
    write_beside(capped, "index/n.index", CAP_BYTES)
    assert capped.spare_bytes() == 0
    with pytest.raises(StoreFullError, match="byte cap"):
        capped.put_documents("n", [make_write("d", [make_record("d")])])
    assert capped.read_record("n", records[0].packet_key) == records[0].record
    capped.delete_document("n", "a 0")
    capped.close()
    with PacketStore.open(capped.path) as store:
        assert store.count() == len(records) - 1
        assert store.check(deep=True) == []


def test_without_a_cap_nothing_is_counted(tmp_path):
    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as store:
        assert store.spare_bytes() is None
