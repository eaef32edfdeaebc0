"""Compaction and its locks: whoever is killed, or runs beside it, finds a whole store."""

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pytest

from kvpacket_store.errors import StoreError, StoreLockedError
from kvpacket_store.store import PacketStore, compaction, locks
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault

RECORDS = [make_record(f"r{i}", 200_000) for i in range(20)]
KEPT = RECORDS[15:]


@pytest.fixture
def churned(tmp_path):
    """A store most of which is free pages."""
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 20) as store:
        for record in RECORDS:
            store.put_documents("n", [make_write(record.packet_key, [record])])
        for record in RECORDS[:15]:
            store.delete_document("n", record.packet_key)
        yield store


def require_whole(store):
    assert store.count() == len(KEPT)
    for record in KEPT:
        assert store.read_record("n", record.packet_key) == record.record
    assert store.check(deep=True) == []


def siblings(store):
    return sorted(path.name for path in store.path.parent.iterdir())


def test_compaction_gives_the_disk_back_and_the_handles_go_on(churned):
    other = PacketStore.open(churned.path)
    before_bytes = churned.stats().file_bytes
    report = churned.compact()
    assert report.before_bytes == before_bytes
    assert report.after_bytes == report.file_bytes == churned.stats().file_bytes
    assert report.after_bytes < 0.5 * before_bytes
    assert siblings(churned) == ["s.kvps"]
    for store in (churned, other):
        require_whole(store)
    other.put_documents("n", [make_write("new", [RECORDS[0]])])
    assert churned.read_record("n", RECORDS[0].packet_key) == RECORDS[0].record
    with PacketStore.open(churned.path) as third:
        assert third._environment is churned._environment
    other.close()
    assert churned.compact().after_bytes == churned.stats().file_bytes


def test_threads_go_on_beside_compactions(churned):
    stop, errors = threading.Event(), []

    def work(name):
        try:
            for i in range(10_000):
                if stop.is_set():
                    return
                churned.put_documents("n", [make_write(name, [make_record(f"{name} {i}")])])
                assert churned.read_record("n", KEPT[0].packet_key) == KEPT[0].record
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for _ in range(5):
        churned.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert churned.check(deep=True) == []


HOLD = """
import sys
from kvpacket_store.store import PacketStore

with PacketStore.open(sys.argv[1], read_only=len(sys.argv) > 2) as store:
    print("holding", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("mode", [[], ["read"]])
def test_a_store_that_another_process_has_open_is_not_compacted(churned, monkeypatch, mode):
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.05)
    command = [sys.executable, "-c", HOLD, str(churned.path), *mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"holding\n"
        with pytest.raises(StoreLockedError, match="another process has it open"):
            churned.compact()
        require_whole(churned)
        child.kill()
    churned.compact()
    require_whole(churned)


def test_a_forked_child_neither_holds_nor_loses_the_parents_lock(churned, monkeypatch):
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.05)
    ready, go_on = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)  # the parent has compacted beside a child that uses nothing
        churned.count()
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        churned.close()
        os._exit(0)
    os.read(ready[0], 1)
    churned.compact()
    os.write(go_on[1], b"x")
    os.read(ready[0], 1)
    with pytest.raises(StoreLockedError):
        churned.compact()
    os.write(go_on[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    churned.compact()
    require_whole(churned)


def test_a_store_that_is_being_compacted_is_not_opened(churned, monkeypatch):
    path = churned.path
    churned.close()
    alone = locks.FolderLocks(path, is_lockless=False)
    alone.hold_alone()
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.05)
    with pytest.raises(StoreLockedError, match="compacted"):
        PacketStore.open(path)
    alone.release()
    with PacketStore.open(path) as store:
        require_whole(store)


KILLED = """
import os, pathlib, sys
from kvpacket_store.store import PacketStore, compaction

really_sync, really_rename = compaction.sync, pathlib.Path.rename
calls = []

def sync(path):
    calls.append(path)
    if sys.argv[2] == f"sync {len(calls)}":
        os._exit(9)
    really_sync(path)

def rename(source, target):
    if sys.argv[2] == "before rename":
        os._exit(9)
    really_rename(source, target)
    if sys.argv[2] == "after rename":
        os._exit(9)

compaction.sync, pathlib.Path.rename = sync, rename
with PacketStore.open(sys.argv[1]) as store:
    store.compact()
"""


@pytest.mark.parametrize("point", ["sync 1", "before rename", "after rename", "sync 2"])
def test_a_compaction_that_is_killed_leaves_the_old_file_or_the_new(churned, point):
    churned.close()
    child = subprocess.run([sys.executable, "-c", KILLED, str(churned.path), point], check=False)
    assert child.returncode == 9
    with PacketStore.open(churned.path) as store:
        require_whole(store)
        assert len(siblings(store)) == 2
        store.gc()
        assert siblings(store) == ["s.kvps"]
        left = churned.path.parent / ".s.kvps.compact.left0_ab"
        left.mkdir()
        (left / compaction.MARKER_FILE).touch()
        store.compact()
        assert siblings(store) == ["s.kvps"]
        require_whole(store)


@pytest.mark.parametrize("name", [".s.kvps.compact.other", ".s.kvps.compact.abcd1234"])
@pytest.mark.parametrize("collect", [PacketStore.gc, PacketStore.compact])
def test_another_store_is_no_leftover_whatever_its_name(churned, name, collect):
    with PacketStore.create(churned.path.parent / name, make_meta()) as other:
        other.put_documents("n", [make_write("d", [RECORDS[0]])])
    collect(churned)
    with PacketStore.open(churned.path.parent / name) as other:
        assert other.read_record("n", RECORDS[0].packet_key) == RECORDS[0].record


def test_a_leftover_is_deleted_once_nobody_uses_it(churned):
    left = churned.path.parent / ".s.kvps.compact.abcd1234"
    PacketStore.create(left, make_meta()).close()
    (left / compaction.MARKER_FILE).touch()
    plain = churned.path.parent / ".s.kvps.compact.plain123"
    plain.write_text("a file")
    with PacketStore.open(left) as opened:  # someone looks into what was left
        churned.gc()
        assert opened.check() == []
    with (left / compaction.MARKER_FILE).open() as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        churned.gc()
        assert left.exists()
    churned.gc()
    assert siblings(churned) == [plain.name, "s.kvps"]


def test_a_store_behind_a_link_is_compacted_where_it_lies(churned, tmp_path, monkeypatch):
    churned.close()
    link = tmp_path / "elsewhere" / "link.kvps"
    link.parent.mkdir()
    link.symlink_to(churned.path)
    places = []
    really_make = tempfile.mkdtemp

    def make(**options):
        places.append(options["dir"])
        return really_make(**options)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with PacketStore.open(link) as store:
        store.compact()
        require_whole(store)
    assert places == [churned.path.parent]
    assert link.is_symlink()


@pytest.mark.parametrize("is_seen_early", [True, False])
def test_a_store_that_is_a_mount_point_is_not_compacted(churned, monkeypatch, is_seen_early):
    def refuse(*_):
        raise OSError(errno.EXDEV, "another device")

    if is_seen_early:
        really_stat = Path.stat

        def stat(path, **options):
            found = really_stat(path, **options)
            if path != churned.path:
                return found
            mode, inode, device, *rest = found
            return os.stat_result((mode, inode, device + 1, *rest))

        monkeypatch.setattr(Path, "stat", stat)
    else:  # a bind mount has the device of what lies around it
        monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match="mount point"):
        churned.compact()
    monkeypatch.undo()
    assert siblings(churned) == ["s.kvps"]
    require_whole(churned)


def test_a_compaction_that_is_killed_at_once_leaves_the_store_whole(churned):
    churned.close()
    for delay_s in (0.0, 0.002, 0.01):
        code = "import sys; from kvpacket_store.store import PacketStore\n"
        code += "s = PacketStore.open(sys.argv[1]); print(flush=True); s.compact(); s.compact()"
        command = [sys.executable, "-c", code, str(churned.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            threading.Event().wait(delay_s)
            child.kill()
        with PacketStore.open(churned.path) as store:
            require_whole(store)
