"""The order of writes and syncs, read off the system calls: data, sync, meta page, then the answer.

`test_fault_store_power.py` makes the states that this order leaves open.
"""

import re
import shutil
import subprocess
import sys

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta

pytestmark = pytest.mark.fault

CALLS = "openat,close,write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,msync,rename,mmap"
WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}
SYNCS = {"fdatasync", "fsync"}
CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (-?\w+)")
OPENED = re.compile(r'AT_FDCWD, "([^"]*)", ([\w|]+)')


def traced(tmp_path, code, *arguments):
    """Return the (name, arguments, result) of each call that a process made, in order."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-s", "64", "-e", f"trace={CALLS}", "-o", str(trace)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    child = subprocess.run(
        [*command, sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return [
        match.groups() for line in trace.read_text().splitlines() if (match := CALL.match(line))
    ]


def events(calls, folder):
    """Yield what happened to files under ``folder``, and the marks that the process printed.

    ``write FILE`` (``write! FILE`` where the descriptor syncs each write), ``sync FILE``,
    ``map FILE`` (writable and shared), ``rename FILE``, ``mark NAME``. Repeats are one.
    """
    names = {}
    last = None
    for call, arguments, result in calls:
        event = _event(call, arguments, result, names, str(folder))
        if event is not None and event != last:
            yield event
            last = event


def _event(call, arguments, result, names, folder):
    first = arguments.split(",")[0]
    if call == "openat" and (opened := OPENED.match(arguments)) and opened[1].startswith(folder):
        name = opened[1].rsplit("/", 1)[-1]
        names[result] = (name, "O_DSYNC" in opened[2] or "O_SYNC" in opened[2])
    elif call == "close":
        names.pop(first, None)
    elif call in WRITES and first == "2":
        return "mark " + re.search(r'"(.*?)\\n', arguments)[1]
    elif call in WRITES and first in names:
        name, is_synced = names[first]
        return f"write! {name}" if is_synced else f"write {name}"
    elif call in SYNCS and first in names:
        return f"sync {names[first][0]}"
    elif call == "mmap" and "MAP_SHARED" in arguments and "PROT_WRITE" in arguments:
        descriptor = arguments.split(", ")[4]
        return f"map {names[descriptor][0]}" if descriptor in names else None
    elif call == "rename":
        return "rename " + re.findall(r'/([^/"]*)"', arguments)[-1]
    return None


STORE = """
import os, sys
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

def mark(name):
    os.write(2, name + b"\\n")

records = {n: make_record(n, 300_000) for n in "abc"}
mark(b"create")
with PacketStore.create(sys.argv[1], make_meta(), map_bytes=1 << 20) as store:
    for name, action in {
        b"put": lambda: store.put_documents("n", [make_write("d", list(records.values()))]),
        b"grow": lambda: store.put_documents("n", [make_write("e", [make_record("z", 900_000)])]),
        b"upsert": lambda: store.put_documents("n", [make_write("d", [records["a"]], version=1)]),
        b"stage": lambda: store.stage_packets("n", {records["b"].packet_key: records["b"]}),
        b"replace": lambda: store.replace_record("n", make_record("a", 100_000)),
        b"delete": lambda: store.delete_document("n", "d"),
    }.items():
        mark(name)
        action()
        mark(b"done")
"""
COMMITTED = ["write data.mdb", "sync data.mdb", "write! data.mdb"]


def test_each_commit_syncs_its_data_before_its_meta_page(tmp_path):
    found = list(events(traced(tmp_path, STORE, tmp_path / "s.kvps"), tmp_path))
    assert "map data.mdb" not in found, "data.mdb must never be written through memory"
    for name in ("put", "grow", "upsert", "stage", "replace", "delete"):
        start = found.index(f"mark {name}") + 1
        assert found[start : found.index("mark done", start)] == COMMITTED, name


def test_a_new_store_is_on_the_disk_before_it_appears(tmp_path):
    found = list(events(traced(tmp_path, STORE, tmp_path / "s.kvps"), tmp_path))
    made = found[found.index("mark create") + 1 : found.index("mark put")]
    made = [event for event in made if event != "map lock.mdb"]  # locks need not outlive a crash
    renamed = made.index("rename s.kvps")
    assert made[:renamed] == 2 * COMMITTED  # the tables, then the description
    assert made[renamed + 1 :] == ["sync s.kvps", f"sync {tmp_path.name}"]


COMPACT = """
import os, sys
from kvpacket_store.store import PacketStore

with PacketStore.open(sys.argv[1]) as store:
    os.write(2, b"compact\\n")
    store.compact()
    os.write(2, b"done\\n")
"""


def test_a_compacted_file_is_on_the_disk_before_it_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    found = list(events(traced(tmp_path, COMPACT, path), tmp_path))
    made = found[found.index("mark compact") + 1 : found.index("mark done")]
    renamed = made.index("rename data.mdb")
    written = [event for event in made[:renamed] if event.startswith("write")]
    assert written
    assert max(made.index(event) for event in written) < made.index("sync data.mdb") < renamed
    assert "sync s.kvps" in made[renamed:]


SNAPSHOT = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from kvpacket_store.retrieve import PacketIndex
from kvpacket_store.retrieve.snapshot import SnapshotKey, save_snapshot

rows = [("d", n, "k", np.eye(8, dtype="<f4")[n].tobytes()) for n in range(8)]
index = PacketIndex.build(SimpleNamespace(iter_embeddings=lambda namespace: iter(rows)), "n", 8)
os.write(2, b"save\\n")
save_snapshot(Path(sys.argv[1]), SnapshotKey("n", 1, "e", 8), index)
os.write(2, b"done\\n")
"""


def test_a_snapshot_is_on_the_disk_before_it_appears(tmp_path):
    folder = tmp_path / "index"
    found = list(events(traced(tmp_path, SNAPSHOT, folder), folder))
    saved = found[found.index("mark save") + 1 : found.index("mark done")]
    written, synced, renamed, folder_synced = saved
    assert written.startswith("write ")
    assert synced == written.replace("write", "sync")
    assert renamed.endswith(".index")
    assert folder_synced == "sync index"
