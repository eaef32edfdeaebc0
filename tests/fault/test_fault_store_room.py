"""Little room, and readers that hold on to what was freed."""

import subprocess
import sys

import pytest

from kvpacket_store.errors import StoreError, StoreFullError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault

KEPT = make_record("kept", 200_000)


@pytest.fixture
def store(tmp_path):
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 20) as opened:
        opened.put_documents("n", [make_write("kept", [KEPT])])
        yield opened


def test_a_disk_too_full_for_the_copy_changes_nothing(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        with PacketStore.create(folder / "s.kvps", make_meta(), map_bytes=1 << 20) as store:
            records = [make_record(f"r{i}", 1_000_000) for i in range(5)]
            for i, record in enumerate(records):
                store.put_documents("n", [make_write(f"d{i}", [record])])
            before = store.stats()
            with pytest.raises(StoreFullError):
                store.compact()
            assert store.stats() == before
            assert [path.name for path in folder.iterdir()] == ["s.kvps"]
            for record in records:
                assert store.read_record("n", record.packet_key) == record.record
            assert store.check(deep=True) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_capped_store_keeps_its_cap_over_compaction(tmp_path):
    cap_bytes = 4 << 20
    meta = make_meta(max_bytes=cap_bytes)
    with PacketStore.create(tmp_path / "s.kvps", meta, map_bytes=1 << 20) as store:
        for turn in range(2):
            for i in range(30):
                record = make_record(f"{turn} {i}", 200_000)
                store.put_documents("n", [make_write(f"{i}", [record])])
                assert store.stats().file_bytes <= cap_bytes
            store.compact()
        assert store.stats().evicted_packets
        assert store.check(deep=True) == []


LONG_READER = """
import sys
from kvpacket_store.store import PacketStore

with PacketStore.open(sys.argv[1]) as store, store._environment.read():
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_a_long_reader_is_seen_and_a_killed_one_is_cleared(store):
    command = [sys.executable, "-c", LONG_READER, str(store.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"holding\n"
        for i in range(3):
            store.put_documents("n", [make_write("d", [make_record(f"{i}")])])
        sizes = store.stats()
        assert (sizes.readers, sizes.oldest_reader_txns) == (1, 3)
        child.kill()
    for i in range(30):
        store.put_documents("n", [make_write(f"d{i}", [make_record(f"d{i}", 300_000)])])
    assert store.stats().readers == 0


def test_a_store_for_reading_beside_one_for_writing(store):
    with PacketStore.open(store.path, read_only=True) as reader:
        assert reader.is_read_only
        assert not store.is_read_only
        assert reader.read_record("n", KEPT.packet_key) == KEPT.record
        with pytest.raises(StoreError, match="reading alone"):
            reader.put_documents("n", [make_write("d", [make_record("other")])])
    store.close()
    with PacketStore.open(store.path, read_only=True) as reader:
        assert reader.read_record("n", KEPT.packet_key) == KEPT.record
        with pytest.raises(StoreError, match="close that handle"):
            PacketStore.open(store.path, read_only=False)
