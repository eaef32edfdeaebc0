"""SIGKILL at each point of a commit: all is as it was, or as it will be."""

import os
import signal

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write
from kvpacket_store.store.transaction import Transaction

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

MAP_BYTES = 1 << 20
A, B, C = (make_record(name, size) for name, size in (("a", 300_000), ("b", 9000), ("c", 200_000)))
LAYERED = make_record("a", 140_000, enhancement_bytes=150_000)
ACTIONS = {
    "put": lambda store: store.put_documents("n", [make_write("new", [A, C])]),
    "upsert": lambda store: store.put_documents("n", [make_write("d", [B, C], version=1)]),
    "metadata": lambda store: store.update_metadata("n", "d", {"version": 7}, "other"),
    "delete": lambda store: store.delete_document("n", "d"),
    "stage": lambda store: store.stage_packets("n", {C.packet_key: C}),
    "replace": lambda store: store.replace_record("n", make_record("a", 150_000)),
    "recode": lambda store: store.replace_record("n", LAYERED, is_use=False),
    "share": lambda store: store.put_shared(C),
    "pin": lambda store: store.pin_document("n", "e"),
}


def prepared(path):
    with PacketStore.create(path, make_meta(), map_bytes=MAP_BYTES) as store:
        store.put_documents("n", [make_write("d", [A, B]), make_write("e", [B])])
        staged = make_record("staged", 200_000)
        store.stage_packets("n", {staged.packet_key: staged})


def state_of(store):
    documents, _ = store.list_documents("n")
    return (
        documents,
        [store.read_packet("n", m.packet_key) for m in store.iter_packets("n")],
        store.has_shared(C.packet_key),
        store.stats().live_bytes,
    )


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def require_state(path, expected):
    with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
        assert store.check(deep=True) == []
        assert state_of(store) == expected


def at_change(number, monkeypatch):
    """Die before change ``number`` (from 0) of the transaction: chunks, references, manifest, …"""
    left = [number]
    for name in ("put", "delete"):
        change = getattr(Transaction, name)

        def counted(tx, *arguments, change=change):
            if not left[0]:
                die()
            left[0] -= 1
            return change(tx, *arguments)

        monkeypatch.setattr(Transaction, name, counted)


@pytest.mark.parametrize("action", ACTIONS)
def test_killed_before_any_change_of_a_commit_leaves_what_was(
    tmp_path, in_fork, action, monkeypatch
):
    path = tmp_path / "s.kvps"
    prepared(path)
    with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
        before = state_of(store)

    def act(number):
        with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
            at_change(number, monkeypatch)
            ACTIONS[action](store)

    status, number = -signal.SIGKILL, 0
    while status == -signal.SIGKILL:
        status, said = in_fork(lambda say, number=number: act(number))
        if status == -signal.SIGKILL:
            require_state(path, before)
        number += 1
    assert status == 0, said
    assert number > 1
    with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
        assert store.check(deep=True) == []
        assert state_of(store) != before


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("point", ["before", "written, not committed", "committed"])
def test_killed_around_a_commit(tmp_path, in_fork, action, point):
    path, twin = tmp_path / "s.kvps", tmp_path / "twin.kvps"
    for folder in (path, twin):
        prepared(folder)
    with PacketStore.open(twin, map_bytes=MAP_BYTES) as store:
        before = state_of(store)
        ACTIONS[action](store)
        after = state_of(store)
    write = Environment.write

    def dying(self, change, **options):
        if point == "before":
            die()
        write(self, (lambda tx: (change(tx), die())) if point != "committed" else change, **options)
        die()

    def act(_):
        with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
            Environment.write = dying
            ACTIONS[action](store)

    status, said = in_fork(act)
    assert status == -signal.SIGKILL, said
    require_state(path, after if point == "committed" else before)


def test_an_error_between_chunks_and_manifest_leaves_a_miss(tmp_path, monkeypatch):
    record = make_record("a", 500_000)
    put = Transaction.put

    def fail(tx, table, key, value):
        if table is Table.MANIFESTS:
            raise RuntimeError("on purpose")
        put(tx, table, key, value)

    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as store:
        monkeypatch.setattr(Transaction, "put", fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            store.put_documents("n", [make_write("d", [record])])
        monkeypatch.undo()
        assert not store.has_packet("n", record.packet_key)
        assert not store.has_document("n", "d")
        assert store.check(deep=True) == []
