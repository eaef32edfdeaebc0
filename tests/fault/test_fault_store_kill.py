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
from kvpacket_store.store.synthetic import make_meta, make_record, make_write, record_bytes

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
        rarely = [self.stage, self.replace, self.pin, self.collect, self.compact]
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
