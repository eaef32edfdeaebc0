"""Several processes at one store: all of them see whole documents, and none loses anything."""

import subprocess
import sys
import time

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.database import open_database, open_tables
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault


def start(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(*children):
    for child in children:
        _, complaint = child.communicate(timeout=120)
        assert child.returncode == 0, complaint


SAME_DOCUMENTS = """
import sys
from kvpacket_store.store import PacketStore
from kvpacket_store.store.database import open_database, open_tables
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_record, make_write

with PacketStore.open(sys.argv[1], map_bytes=1 << 20) as store:
    for version in range(25):
        for i in range(4):
            records = [make_record(f"{i} {j}", 90_000) for j in range(3)]
            store.put_documents("n", [make_write(f"d{i}", records, version=version)])
            for record in records:
                assert store.has_packet("n", record.packet_key, record.token_ids)
                assert store.read_record("n", record.packet_key) == record.record
"""


def test_two_processes_ingest_the_same_documents(tmp_path):
    path = tmp_path / "s.kvps"
    with PacketStore.create(path, make_meta(), map_bytes=1 << 20) as store:
        children = [start(SAME_DOCUMENTS, path) for _ in range(2)]
        records = [make_record(f"{i} {j}", 90_000) for i in range(4) for j in range(3)]
        while any(child.poll() is None for child in children):
            for record in records:
                if store.has_packet("n", record.packet_key):
                    assert store.read_record("n", record.packet_key) == record.record
        finish(*children)
        assert store.count() == 4
        assert store.stats().packets == 12
        assert store.check(deep=True) == []


UPSERT = """
import sys
from kvpacket_store.store import PacketStore
from kvpacket_store.store.database import open_database, open_tables
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_record, make_write

with PacketStore.open(sys.argv[1]) as store:
    for version in range(150):
        names = ("even a", "even b") if version % 2 == 0 else ("odd a", "odd b", "odd c")
        records = [make_record(name, 120_000) for name in names]
        store.put_documents("n", [make_write("d", records, version=version)])
"""


def test_a_reader_sees_one_version_or_the_next(tmp_path):
    """Pages of the version that goes are used again at once; a snapshot must keep its own."""
    path = tmp_path / "s.kvps"
    even = {make_record(name, 120_000) for name in ("even a", "even b")}
    odd = {make_record(name, 120_000) for name in ("odd a", "odd b", "odd c")}
    versions = set()
    with PacketStore.create(path, make_meta()) as store:
        store.put_documents("n", [make_write("d", sorted(even, key=lambda r: r.packet_key))])
        child = start(UPSERT, path)
        while child.poll() is None:
            manifest, packets = store.read_document("n", "d")
            version = manifest.metadata["version"]
            expected = odd if version % 2 else even
            read = {key: packet.record for key, packet in packets.items()}
            assert read == {record.packet_key: record.record for record in expected}
            versions.add(version)
        finish(child)
        assert len(versions) > 10
        assert store.check(deep=True) == []


GROW = """
import sys
from kvpacket_store.store import PacketStore
from kvpacket_store.store.database import open_database, open_tables
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_record, make_write

name, num_documents, num_bytes = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with PacketStore.open(sys.argv[1], map_bytes=1 << 20) as store:
    for i in range(num_documents):
        record = make_record(f"{name} {i}", num_bytes)
        store.put_documents("n", [make_write(f"{name} {i}", [record])])
        earlier = make_record(f"{name} {i // 2}", num_bytes)
        assert store.read_record("n", earlier.packet_key) == earlier.record
"""


def test_another_process_outgrows_the_map_while_it_is_being_opened(tmp_path):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta(), map_bytes=1 << 20).close()
    handle = open_database(path, 1 << 20, create=False)
    try:
        finish(start(GROW, path, "a", 4, 600_000))
        tables = open_tables(handle, create=False)
        with handle.begin(db=tables[Table.DOCUMENTS]) as txn:
            assert txn.stat(tables[Table.DOCUMENTS])["entries"] == 4
    finally:
        handle.close()


@pytest.mark.parametrize(
    ("num_documents", "num_bytes"),
    [(30, 600_000), pytest.param(120, 4_500_000, marks=pytest.mark.slow)],
)
def test_two_writers_and_a_reader_outgrow_the_map(tmp_path, num_documents, num_bytes):
    path = tmp_path / "s.kvps"
    first = make_record("first", num_bytes)
    with PacketStore.create(path, make_meta(), map_bytes=1 << 20) as store:
        store.put_documents("n", [make_write("first", [first])])
        children = [start(GROW, path, name, num_documents, num_bytes) for name in ("a", "b")]
        while any(child.poll() is None for child in children):
            assert store.read_record("n", first.packet_key) == first.record
            time.sleep(0.001)
        finish(*children)
        assert store.count() == 2 * num_documents + 1
        assert store.check(deep=True) == []
