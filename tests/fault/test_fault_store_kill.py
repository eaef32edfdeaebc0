"""SIGKILL at any moment: what was acknowledged is there, and nothing is half there."""

import random
import signal
import subprocess
import sys
import time

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write, record_bytes

pytestmark = pytest.mark.fault

# Operation number i, the same in every process: mostly puts, some upserts, some deletions.
OPERATIONS = """
import random, sys
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_record, make_write

def apply(i, store, model):
    rng = random.Random(i)
    if i % 5 == 4 and model:
        victim = sorted(model)[rng.randrange(len(model))]
        if store: store.delete_document("n", victim)
        del model[victim]
        return
    batch = {}
    for _ in range(rng.randint(1, 3)):
        names = [f"p{rng.randrange(40)}" for _ in range(rng.randint(1, 3))]
        batch[f"d{rng.randrange(25)}"] = names
    if store:
        records = lambda names: [make_record(n, 1000 + 37_000 * int(n[1:])) for n in names]
        writes = [make_write(d, records(names), version=i) for d, names in batch.items()]
        store.put_documents("n", writes)
    model.update(batch)
"""
CHILD = (
    OPERATIONS
    + """
first, model = int(sys.argv[2]), {}
for i in range(first):
    apply(i, None, model)
with PacketStore.open(sys.argv[1], map_bytes=1 << 20) as store:
    for i in range(first, first + 100_000):
        apply(i, store, model)
        print(i, flush=True)
"""
)


def model_after(num_operations):
    scope: dict = {}
    exec(OPERATIONS, scope)
    model: dict[str, list[str]] = {}
    for i in range(num_operations):
        scope["apply"](i, None, model)
    return {d: [make_record(n, 1).packet_key for n in names] for d, names in model.items()}


def run_and_kill(path, first, num_lines, delay_s):
    """Let a child work, kill it, and return the number of operations that it acknowledged."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(first)], stdout=subprocess.PIPE, text=True
    )
    with child:
        for _ in range(num_lines):
            assert child.stdout.readline(), "the child died by itself"
        time.sleep(delay_s)
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
    return first + num_lines + len(rest)


def contents(store):
    listed, _ = store.list_documents("n", 1000)
    return {d.id: [segment.packet_key for segment in d.segments] for d in listed}


def test_what_was_acknowledged_survives(tmp_path):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    rng, done = random.Random(20261129), 0
    for _ in range(5):
        acknowledged = run_and_kill(path, done, rng.randint(2, 12), rng.uniform(0, 0.02))
        with PacketStore.open(path, map_bytes=1 << 20) as store:
            found = contents(store)
            # the one under way may have been committed and not yet acknowledged
            candidates = (acknowledged, acknowledged + 1)
            done = next(n for n in candidates if model_after(n) == found)
            assert store.check(deep=True) == []
            for manifest in store.iter_packets("n"):
                expected = record_bytes(manifest.packet_key, manifest.stored_bytes)
                assert store.read_record("n", manifest.packet_key) == expected
    assert done > 10


KILL_BEFORE_MANIFEST = """
import os, signal, sys
from kvpacket_store.store import PacketStore, packets
from kvpacket_store.store.synthetic import make_record, make_write

def die(tx, key, row):
    print("chunks are written", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

packets._put_manifest = die
store = PacketStore.open(sys.argv[1])
store.put_documents("n", [make_write("d", [make_record("b", 500_000)])])
"""


def test_between_chunks_and_manifest_lies_a_miss(tmp_path):
    path = tmp_path / "s.kvps"
    known, lost = make_record("a", 500_000), make_record("b", 500_000)
    with PacketStore.create(path, make_meta()) as store:
        store.put_documents("n", [make_write("d", [known])])
    child = subprocess.run(
        [sys.executable, "-c", KILL_BEFORE_MANIFEST, str(path)], capture_output=True, check=False
    )
    assert child.stdout == b"chunks are written\n"
    assert child.returncode == -signal.SIGKILL
    with PacketStore.open(path) as store:
        assert not store.has_packet("n", lost.packet_key)
        assert store.get_document("n", "d").packet_keys == (known.packet_key,)
        assert store.check(deep=True) == []
        store.put_documents("n", [make_write("d", [lost])])
        assert store.read_record("n", lost.packet_key) == lost.record
        assert store.check(deep=True) == []


def test_an_error_between_chunks_and_manifest_leaves_a_miss(tmp_path, monkeypatch):
    record = make_record("a", 500_000)
    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as store:

        def fail(*_):
            raise RuntimeError("on purpose")

        monkeypatch.setattr("kvpacket_store.store.packets._put_manifest", fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            store.put_documents("n", [make_write("d", [record])])
        monkeypatch.undo()
        assert not store.has_packet("n", record.packet_key)
        assert not store.has_document("n", "d")
        assert store.check(deep=True) == []
