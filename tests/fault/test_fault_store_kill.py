"""SIGKILL at any moment: what was acknowledged is there, and nothing is half there."""

import copy
import os
import random
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta, make_record, make_write, record_bytes
from kvpacket_store.store.transaction import Transaction

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

KILLS = 10
MANY_KILLS = 200
MAP_BYTES = 1 << 20
NUM_NAMES, NUM_DOCUMENTS = 40, 25


def first_bytes(name):
    """Return the size that a packet is first written with: one chunk, or several."""
    return 1000 + 37_000 * (int(name[1:]) % 10)


@dataclass
class Model:
    """What a store holds, in dicts. Given a store, each operation is done there as well."""

    documents: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    packets: dict[str, int] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)

    def apply(self, i, store=None):
        """Do operation number i, which is the same in every process."""
        rng = random.Random(i)
        often = [self.put] * 6 + [self.delete] * 2
        rarely = [self.stage, self.replace, self.drop_staged, self.pin, self.collect, self.compact]
        rng.choice(often + rarely)(i, rng, store)

    def put(self, i, rng, store):
        batch = {
            f"d{rng.randrange(NUM_DOCUMENTS)}": tuple(names_of(rng))
            for _ in range(rng.randint(1, 3))
        }
        if store:
            records = {d: [self.record(name) for name in names] for d, names in batch.items()}
            store.put_documents("n", [make_write(d, r, version=i) for d, r in records.items()])
        for document, names in batch.items():
            old = self.documents.get(document, (0, ()))[1]
            self.documents[document] = (i, names)
            self._keep(names)
            self._let_go(old)

    def delete(self, i, rng, store):
        if not self.documents:
            return
        victim = rng.choice(sorted(self.documents))
        if store:
            store.delete_document("n", victim)
        self.pinned.discard(victim)
        self._let_go(self.documents.pop(victim)[1])

    def stage(self, i, rng, store):
        names = names_of(rng)
        if store:
            records = [self.record(name) for name in names]
            store.stage_packets("n", {record.packet_key: record for record in records})
        self._keep(names)

    def replace(self, i, rng, store):
        referenced = sorted(self._referenced())
        if not referenced:
            return
        name, num_bytes = rng.choice(referenced), 1000 + rng.randrange(300_000)
        if store:
            store.replace_record("n", make_record(name, num_bytes))
        self.packets[name] = num_bytes

    def drop_staged(self, i, rng, store):
        if store:
            store.delete_staged("n")
        self._let_go(list(self.packets))

    def pin(self, i, rng, store):
        if not self.documents:
            return
        document = rng.choice(sorted(self.documents))
        if store:
            store.pin_document("n", document)
        self.pinned.add(document)

    def collect(self, i, rng, store):
        """Collect garbage; what was staged just now is no garbage yet."""
        if store:
            store.gc()

    def compact(self, i, rng, store):
        if store:
            store.compact()

    def record(self, name):
        return make_record(name, first_bytes(name))

    def _keep(self, names):
        for name in names:
            self.packets.setdefault(name, first_bytes(name))

    def _let_go(self, names):
        for name in set(names) & self.packets.keys() - self._referenced():
            del self.packets[name]

    def _referenced(self):
        return {name for _, names in self.documents.values() for name in names}


def names_of(rng):
    return [f"p{rng.randrange(NUM_NAMES)}" for _ in range(rng.randint(1, 3))]


def require_equal(store, model):
    """Compare everything, to the last byte."""
    assert store.check(deep=True) == []
    key_of = {name: make_record(name, 1).packet_key for name in model.packets}
    listed, _ = store.list_documents("n", NUM_DOCUMENTS + 1)
    assert {d.id: (d.metadata["version"], [s.packet_key for s in d.segments]) for d in listed} == {
        d: (version, [key_of[name] for name in names])
        for d, (version, names) in model.documents.items()
    }
    assert {d.id for d in listed if d.is_pinned} == model.pinned
    sizes = {manifest.packet_key: manifest.stored_bytes for manifest in store.iter_packets("n")}
    assert sizes == {key_of[name]: num_bytes for name, num_bytes in model.packets.items()}
    for key, num_bytes in sizes.items():
        assert store.read_record("n", key) == record_bytes(key, num_bytes)


@contextmanager
def noted(seed):
    """Say with any failure which kill it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"kill with seed {seed}")
        raise


def work_until_killed(path, model, first):
    """Return what a child does: operations from ``first`` on, a byte to the parent after each."""

    def work(say):
        with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
            say(b"o")
            for i in range(first, first + 100_000):
                model.apply(i, store)
                say(b".")

    return work


def kill_after(num_operations, delay_s):
    """Return what the parent does meanwhile."""

    def during(pid, receive):
        for _ in range(1 + num_operations):
            assert os.read(receive, 1) in (b"o", b"."), "the child died by itself"
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)

    return during


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.slow)])
def test_what_was_acknowledged_survives(tmp_path, in_fork, kills):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    model, done = Model(), 0
    for seed in range(kills):
        rng = random.Random(seed)
        num_operations = rng.randint(1, 8)
        with noted(seed):
            work = work_until_killed(path, copy.deepcopy(model), done)
            status, said = in_fork(work, kill_after(num_operations, rng.uniform(0, 0.02)))
            assert status == -signal.SIGKILL, said
            for _ in range(num_operations + len(said)):
                model.apply(done)
                done += 1
            with PacketStore.open(path, map_bytes=MAP_BYTES) as store:
                # the one under way may have been committed and not yet acknowledged
                following = copy.deepcopy(model)
                following.apply(done)
                try:
                    require_equal(store, model)
                except AssertionError:
                    require_equal(store, following)
                    model, done = following, done + 1
    assert done > kills


A, B, C = (make_record(name, size) for name, size in (("a", 300_000), ("b", 9000), ("c", 200_000)))
ACTIONS = {
    "put": lambda store: store.put_documents("n", [make_write("new", [A, C])]),
    "upsert": lambda store: store.put_documents("n", [make_write("d", [B, C], version=1)]),
    "metadata": lambda store: store.update_metadata("n", "d", {"version": 7}, "other"),
    "delete": lambda store: store.delete_document("n", "d"),
    "stage": lambda store: store.stage_packets("n", {C.packet_key: C}),
    "replace": lambda store: store.replace_record("n", make_record("a", 150_000)),
    "share": lambda store: store.put_shared(C),
    "drop staged": lambda store: store.delete_staged("n"),
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
        [(m, store.read_record("n", m.packet_key)) for m in store.iter_packets("n")],
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
