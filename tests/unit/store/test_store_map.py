import contextlib
import threading
from pathlib import Path

import lmdb
import pytest

from kvpacket_store.errors import DocumentError, StoreError
from kvpacket_store.store import PacketStore, database, environment
from kvpacket_store.store.gate import Gate
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write


def map_bytes(store):
    return store._environment._handle().info()["map_size"]


def test_the_map_grows_as_needed(store):
    assert map_bytes(store) == 1 << 20
    records = [make_record(str(i), 500_000) for i in range(9)]
    for i, record in enumerate(records):
        store.put_documents("n", [make_write(str(i), [record])])
    assert map_bytes(store) == 8 << 20
    assert all(store.read_record("n", r.packet_key) == r.record for r in records)
    assert store.check(deep=True) == []


def test_the_map_grows_beside_readers_and_other_writers(store):
    errors = []
    shared = make_record("shared", 100_000)
    store.put_documents("n", [make_write("shared", [shared])])

    def work(name):
        try:
            for i in range(8):
                record = make_record(f"{name} {i}", 300_000)
                store.put_documents("n", [make_write(f"{name} {i}", [record])])
                assert store.read_record("n", record.packet_key) == record.record
                assert store.read_record("n", shared.packet_key) == shared.record
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.count() == 33
    assert map_bytes(store) == 16 << 20
    assert store.check(deep=True) == []


def test_where_address_space_is_short_less_is_taken(tmp_path, monkeypatch):
    asked = []
    really_open = lmdb.open

    def short(path, map_size, **options):
        asked.append(map_size)
        if map_size > 1 << 22:
            raise lmdb.MemoryError("mmap", 12)
        return really_open(path, map_size=map_size, **options)

    monkeypatch.setattr(database.lmdb, "open", short)
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 24) as store:
        store.put_documents("n", [make_write("d", [make_record("a")])])
    assert asked[-3:] == [1 << 24, 1 << 23, 1 << 22]
    monkeypatch.setattr(database, "_MIN_MAP_BYTES", 1 << 23)
    with pytest.raises(StoreError, match="address space"):
        PacketStore.open(tmp_path / "s.kvps", map_bytes=1 << 23)


def test_a_map_that_cannot_grow_leaves_the_store_readable(store, monkeypatch):
    record = make_record("a", 300_000)
    store.put_documents("n", [make_write("d", [record])])
    grow = environment.Environment._grow

    def too_much(self, *_):
        grow(self, 1 << 50, 1 << 60)  # no machine has that much address space

    monkeypatch.setattr(environment.Environment, "_grow", too_much)
    with pytest.raises(StoreError, match="address space"):
        store.put_documents("n", [make_write("e", [make_record("b", 900_000)])])
    monkeypatch.undo()
    assert store.read_record("n", record.packet_key) == record.record
    store.put_documents("n", [make_write("e", [make_record("b", 900_000)])])
    assert store.check(deep=True) == []


def test_a_database_that_gave_up_is_opened_again(store, monkeypatch):
    """LMDB refuses everything once a commit could not write its last page."""

    class GivenUp:
        def begin(self, **_):
            raise lmdb.PanicError("mdb_txn_begin", -30795)

    record = make_record("a")
    store.put_documents("n", [make_write("d", [record])])
    environment_ = store._environment
    handles = iter([GivenUp()])
    take = type(environment_)._handle
    monkeypatch.setattr(
        type(environment_), "_handle", lambda self: next(handles, None) or take(self)
    )
    before = environment_._lmdb
    assert store.read_record("n", record.packet_key) == record.record
    assert environment_._lmdb is not before
    store.put_documents("n", [make_write("e", [record])])


def test_a_write_that_has_to_start_again_counts_once(store):
    """The map is full in the middle: the second run must not add to the first one's counters."""
    records = [make_record(str(i), 400_000) for i in range(5)]
    store.put_documents("n", [make_write("d", records)])
    assert map_bytes(store) > 1 << 20
    assert store.stats("n").packets == 5
    assert store.check() == []


def test_many_snapshots_are_held_at_once(store):
    record = make_record("a")
    store.put_documents("n", [make_write("d", [record])])
    with contextlib.ExitStack() as held:
        for _ in range(200):
            held.enter_context(store._environment.read())
        assert store.read_record("n", record.packet_key) == record.record
        store.put_documents("n", [make_write("e", [record])])
    assert store.count() == 2


def test_a_write_that_fails_lets_the_waiting_one_through(store):
    inside, go_on = threading.Event(), threading.Event()
    errors = []

    def fail(_):
        inside.set()
        go_on.wait()
        raise DocumentError("d", "on purpose")

    def write(action):
        try:
            store._environment.write(action)
        except DocumentError as error:
            errors.append(error)

    failing = threading.Thread(target=write, args=(fail,))
    failing.start()
    inside.wait()
    waiting = threading.Thread(
        target=store.put_documents, args=("n", [make_write("e", [make_record("a")])])
    )
    waiting.start()
    waiting.join(0.05)
    go_on.set()
    failing.join()
    waiting.join()
    assert len(errors) == 1
    assert store.count() == 1


def test_the_gate_lets_one_be_alone():
    gate = Gate()
    inside, alone = [], threading.Event()

    def enter():
        with gate.shared():
            inside.append(alone.is_set())

    with gate.alone():
        late = threading.Thread(target=enter)
        late.start()
        late.join(0.05)
        assert inside == []
        alone.set()
    late.join()
    assert inside == [True]


def test_the_gate_gives_up_in_time_and_stays_usable():
    gate = Gate()
    with gate.shared():
        assert not gate.enter_alone(timeout_s=0.01)
        with gate.shared():
            pass
    assert gate.enter_alone(timeout_s=0.01)
    assert not gate.enter_alone(timeout_s=0.01)
    gate.leave_alone()


def test_whoever_waits_to_be_alone_goes_first():
    gate = Gate()
    order = []
    gate.enter()

    def be_alone():
        with gate.alone():
            order.append("alone")

    def be_inside():
        with gate.shared():
            order.append("inside")

    waiting = threading.Thread(target=be_alone)
    waiting.start()
    while not gate._is_closing:
        pass
    late = threading.Thread(target=be_inside)
    late.start()
    late.join(0.05)
    gate.leave()
    waiting.join()
    late.join()
    assert order == ["alone", "inside"]


def is_mapped(store):
    return str(store.path / "data.mdb") in Path("/proc/self/maps").read_text()


def test_the_file_is_unmapped_after_much_was_written(store, monkeypatch):
    """Else an ingest would come to count the whole file as its memory."""
    monkeypatch.setattr(environment, "_MAX_MAPPED_BYTES", 100_000)
    store.put_documents("n", [make_write("small", [make_record("a", 1000)])])
    assert is_mapped(store)
    store.put_documents("n", [make_write("large", [make_record("b", 200_000)])])
    assert not is_mapped(store)
    assert store.count("n") == 2
    assert is_mapped(store)


def test_the_file_stays_mapped_while_it_is_read(store, monkeypatch):
    monkeypatch.setattr(environment, "_MAX_MAPPED_BYTES", 100_000)
    with store._environment.read() as tx:
        store.put_documents("n", [make_write("large", [make_record("b", 200_000)])])
        assert tx.count_rows(Table.DOCUMENTS) == 0
        assert is_mapped(store)
    store.put_documents("n", [make_write("small", [make_record("a", 1000)])])
    assert not is_mapped(store)
