"""A fork in the middle of everything: parent and child go on, each with a database of its own."""

import os
import signal
import threading
import traceback
import warnings

import pytest

from kvpacket_store.errors import StoreError
from kvpacket_store.store import PacketStore, handle
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

A = make_record("a", 300_000)


@pytest.fixture
def store(tmp_path):
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 20) as opened:
        opened.put_documents("n", [make_write("d", [A])])
        yield opened


def in_fork(action):
    """Run ``action`` in a child and return its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a child that hangs is a failure too
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parent_and_child_both_go_on(store):
    def child():
        assert store.read_record("n", A.packet_key) == A.record
        store.put_documents("n", [make_write("child", [make_record("b", 2_000_000)])])
        assert store._environment._pid == os.getpid()

    parents_handle = store._environment._handle()
    assert in_fork(child) == 0
    assert store._environment._handle() is not parents_handle
    assert store.has_document("n", "child")
    store.put_documents("n", [make_write("parent", [make_record("c", 2_000_000)])])
    assert in_fork(lambda: store.get_document("n", "parent")) == 0
    assert in_fork(store.close) == 0
    assert store.read_record("n", A.packet_key) == A.record
    assert store.check(deep=True) == []


def test_a_fork_waits_for_running_transactions(store):
    stop, errors = threading.Event(), []

    def work(name):
        try:
            for i in range(10_000):
                if stop.is_set():
                    return
                store.put_documents("n", [make_write(f"{name} {i % 3}", [make_record(f"{i}")])])
                assert store.read_record("n", A.packet_key) == A.record
        except BaseException as error:
            errors.append(error)

    def child():
        for i in range(3):
            store.put_documents("n", [make_write("child", [make_record(f"child {i}", 90_000)])])
            assert store.read_record("n", A.packet_key) == A.record

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    statuses = [in_fork(child) for _ in range(5)]
    stop.set()
    for thread in threads:
        thread.join()
    assert statuses == [0] * 5
    assert errors == []
    assert store.check(deep=True) == []


def test_a_snapshot_of_the_child_is_not_freed_by_the_parent(store):
    """Both may hold the same reader slot if the child inherits the parent's."""
    ready, go_on = os.pipe(), os.pipe()

    def child():
        with store._environment.read() as tx:
            before = [value for _, value in tx.scan(Table.CHUNKS)]
            os.write(ready[1], b"x")
            os.read(go_on[0], 1)
            assert [value for _, value in tx.scan(Table.CHUNKS)] == before

    def write_meanwhile():
        os.read(ready[0], 1)
        for i in range(6):  # without the child's reader, these would use its pages again
            store.put_documents("n", [make_write("d", [make_record(f"b{i}", 300_000)])])
        os.write(go_on[1], b"x")

    store.read_record("n", A.packet_key)
    writer = threading.Thread(target=write_meanwhile)
    writer.start()
    assert in_fork(child) == 0
    writer.join()


def test_a_fork_beside_an_endless_transaction_is_refused_in_the_child(store, monkeypatch):
    monkeypatch.setattr(handle, "_FORK_PATIENCE_S", 0.01)
    inside, stop = threading.Event(), threading.Event()

    def hold():
        with store._environment.read():
            inside.set()
            stop.wait()

    def child():
        with pytest.raises(StoreError, match="spawn"):
            store.count()
        store.close()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    try:
        assert in_fork(child) == 0
    finally:
        stop.set()
        holder.join()
    assert store.read_record("n", A.packet_key) == A.record
