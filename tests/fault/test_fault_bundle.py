"""Kills, full disks and absurd sizes: a bundle is whole or not there, and memory stays bounded."""

import struct
import subprocess
import sys
import tracemalloc

import pytest

from kvpacket_store.bundle import read_bundle, write_bundle
from kvpacket_store.errors import BundleError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault

WRITE = """
import os, resource, signal, sys
from kvpacket_store.bundle import write_bundle
from kvpacket_store.errors import StoreFullError
from kvpacket_store.store import PacketStore

store, target, kind = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_late(done, total):
    if done == total:
        die()

with PacketStore.open(store) as opened:
    if kind == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    if kind == "rename":
        os.replace = os.rename = die
    if kind == "sync":
        os.fsync = die
    try:
        write_bundle(opened, target, namespace="n", overwrite=True,
                     progress={"early": die, "late": die_late}.get(kind))
    except StoreFullError:
        sys.exit(3)
"""


@pytest.fixture
def store(tmp_path):
    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as opened:
        records = [make_record(f"r{i}", 200_000) for i in range(5)]
        opened.put_documents("n", [make_write(f"d{i}", records[: i + 1]) for i in range(5)])
        yield opened


def run(store, target, kind):
    return subprocess.run(
        [sys.executable, "-c", WRITE, str(store.path), str(target), kind], check=False
    ).returncode


@pytest.mark.parametrize("kind", ["early", "late", "sync", "rename"])
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "overwritten"])
def test_a_killed_export_leaves_the_old_file_or_none(store, tmp_path, kind, is_there):
    target = tmp_path / "x.kvpb"
    if is_there:
        write_bundle(store, target, namespace="n", document_ids=["d0"])
    before = target.read_bytes() if is_there else None
    assert run(store, target, kind) == -9
    assert (target.read_bytes() if target.exists() else None) == before
    assert run(store, target, "none") == 0  # whatever the other one left behind
    with read_bundle(target) as bundle:
        assert bundle.num_documents == 5


def test_a_file_size_limit_is_a_full_disk(store, tmp_path):
    target = tmp_path / "x.kvpb"
    assert run(store, target, "limit") == 3
    assert {path.name for path in tmp_path.iterdir()} == {"s.kvps"}


def test_writing_and_reading_take_one_packet_at_a_time(store, tmp_path):
    tracemalloc.start()
    try:
        write_bundle(store, tmp_path / "x.kvpb", namespace="n")
        with read_bundle(tmp_path / "x.kvpb") as bundle:
            for _, packets, _ in bundle.documents():
                assert all(len(packets[key].record) == 200_000 for key in packets)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "x.kvpb").stat().st_size > 1_000_000
    assert peak < 900_000


@pytest.mark.parametrize("value", [1 << 24, 1 << 30, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF])
def test_absurd_numbers_of_the_zip_file_allocate_nothing(store, tmp_path, value):
    path = tmp_path / "x.kvpb"
    write_bundle(store, path, namespace="n", document_ids=["d0"])
    content = path.read_bytes()
    end, directory = content.rindex(b"PK\x05\x06"), content.index(b"PK\x01\x02")
    places = [end + 12, end + 16, directory + 20, directory + 24, directory + 42]
    for place in places:
        spoilt = bytearray(content)
        struct.pack_into("<I", spoilt, place, value)
        path.write_bytes(spoilt)
        tracemalloc.start()
        try:
            with pytest.raises(BundleError):
                read_bundle(path)
            assert tracemalloc.get_traced_memory()[1] < 300_000
        finally:
            tracemalloc.stop()
