"""A disk that is full, short or not ours: a clear error, and nothing lost."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from kvpacket_store.errors import ReadOnlyError, StoreError, StoreFullError, StoreLockedError
from kvpacket_store.store import PacketStore, locks
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(store, num_bytes=700_000):
    """Put documents until none goes in; return the records that did."""
    records = []
    while True:
        record = make_record(f"r{len(records)}", num_bytes)
        try:
            store.put_documents("n", [make_write(f"d{len(records)}", [record])])
        except StoreFullError:
            return records
        records.append(record)


def require_intact(store, records):
    assert store.count() == len(records)
    for record in records:
        assert store.read_record("n", record.packet_key) == record.record
    assert store.check(deep=True) == []


def test_a_full_disk_loses_nothing_and_can_be_used_again(small_disk):
    with PacketStore.create(small_disk / "s.kvps", make_meta(), map_bytes=1 << 20) as store:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        records = fill(store)
        assert len(records) > 8
        require_intact(store, records)
        with pytest.raises(StoreFullError, match="acknowledged"):
            store.put_documents("n", [make_write("again", [make_record("again", 2_000_000)])])
        ballast.unlink()
        for index in range(len(records) // 2):
            store.delete_document("n", f"d{index}")
        kept = records[len(records) // 2 :]
        require_intact(store, kept)
        more = [make_record(f"more {i}", 300_000) for i in range(3)]
        for i, record in enumerate(more):
            store.put_documents("n", [make_write(f"more {i}", [record])])
        require_intact(store, kept + more)
    with PacketStore.open(small_disk / "s.kvps") as store:
        require_intact(store, kept + more)


LIMITED = """
import resource, signal, sys
from kvpacket_store.errors import StoreFullError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_record, make_write

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
with PacketStore.open(sys.argv[1]) as store:
    try:
        for i in range(20):
            store.put_documents("n", [make_write(f"d{i}", [make_record(f"r{i}", 400_000)])])
            print(i, flush=True)
    except StoreFullError:
        assert store.count() == i
        record = make_record("r0", 400_000)
        assert store.read_record("n", record.packet_key) == record.record
        print("full")
"""


def test_a_limit_of_the_file_size_is_a_full_disk(tmp_path):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    *acknowledged, last = child.stdout.split()
    assert last == "full", child.stderr
    with PacketStore.open(path) as store:
        require_intact(store, [make_record(f"r{i}", 400_000) for i in range(len(acknowledged))])


@pytest.fixture
def public_folder():
    """A folder that other users can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(action):
    """Run ``action`` without any privilege; return what it returned, as text."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(send, str(action()).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        return answer.read().decode()


def error_of(call):
    try:
        call()
    except StoreError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def forbid_writing(path):
    for file in path.iterdir():
        file.chmod(0o444)
    path.chmod(0o555)


def test_a_folder_that_may_not_be_written_is_read(public_folder):
    path, record = public_folder / "s.kvps", make_record("a")
    with PacketStore.create(path, make_meta()) as store:
        store.put_documents("n", [make_write("d", [record])])
    forbid_writing(path)

    def read_and_write():
        with PacketStore.open(path) as store:
            assert store.is_read_only
            assert store.read_record("n", record.packet_key) == record.record
            store.touch("n", [record.packet_key])
            assert store.check(deep=True) == []
            return error_of(lambda: store.delete_document("n", "d"))

    answer = as_nobody(read_and_write)
    assert answer.startswith("ReadOnlyError")
    assert "write permission" in answer
    answer = as_nobody(lambda: error_of(lambda: PacketStore.open(path, read_only=False)))
    assert answer.startswith("StoreError")
    assert "write permission" in answer
    answer = as_nobody(lambda: error_of(lambda: PacketStore.create(path / "x.kvps", make_meta())))
    assert answer.startswith("StoreError")
    assert "write permission" in answer


UNPRIVILEGED = """
import os, sys, tempfile
import lmdb
from kvpacket_store.errors import StoreLockedError
from kvpacket_store.store import PacketStore
with tempfile.TemporaryDirectory() as folder:
    lmdb.open(folder).close()  # what it imports late may be where only root can read
os.setgid(65534)
os.setuid(65534)
try:
    with PacketStore.open(sys.argv[1]) as store:
        print(store.is_read_only, flush=True)
        sys.stdin.read()
except StoreLockedError as error:
    print(error)
"""


@contextlib.contextmanager
def unprivileged(path):
    """A process that opens the store and may not write there; what it says of that."""
    command = [sys.executable, "-c", UNPRIVILEGED, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child.stdout.readline()
        child.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where others may not")
def test_a_reader_without_locks_and_a_writer_exclude_each_other(public_folder, monkeypatch):
    """The writer does not know of the reader, and would use its pages again."""
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.05)
    path = public_folder / "s.kvps"
    with PacketStore.create(path, make_meta()):
        forbid_writing(path)
        with unprivileged(path) as answer:
            assert "cannot read beside it" in answer
    with unprivileged(path) as answer, unprivileged(path) as another:
        assert (answer, another) == ("True\n", "True\n")
        with pytest.raises(StoreLockedError, match="without locks"):
            PacketStore.open(path, read_only=False)
    with PacketStore.open(path, read_only=False) as store:
        store.put_documents("n", [make_write("d", [make_record("a")])])


def test_a_disk_that_is_mounted_for_reading_is_read(small_disk):
    path, record = small_disk / "s.kvps", make_record("a")
    with PacketStore.create(path, make_meta()) as store:
        store.put_documents("n", [make_write("d", [record])])
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    if subprocess.run(remount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount for reading here")
    with PacketStore.open(path) as store:
        assert store.is_read_only
        assert store.read_record("n", record.packet_key) == record.record
        for change in (store.gc, store.compact, lambda: store.pin_document("n", "d")):
            with pytest.raises(ReadOnlyError):
                change()


def test_a_folder_that_may_not_be_entered_says_so(public_folder):
    path = public_folder / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    path.chmod(0)
    answer = as_nobody(lambda: error_of(lambda: PacketStore.open(path)))
    assert answer.startswith("StoreError")
    assert "permission" in answer
