"""Power loss: writes that were not synced are lost, or torn, in any order. Nothing else is.

SIGKILL leaves the kernel's cache in place, so it proves atomicity alone. Here the order of writes
and syncs is read off the system calls, and every state that this order allows is made and opened.
A sector of 512 bytes is written whole or not at all: the one that holds LMDB's meta page, too.
"""

import random
import shutil
from itertools import pairwise

import pytest

from kvpacket_store.errors import NotFoundError, StoreCorruptError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault

PAGE_BYTES = 4096
SECTOR_BYTES = 512
META_BYTES = 2 * PAGE_BYTES  # two meta pages, written in turn
SMALL, LARGE = 3_000, 300_000


def put(store, documents, version=0):
    writes = [
        make_write(d, [make_record(n, size) for n, size in names.items()], version=version)
        for d, names in documents.items()
    ]
    store.put_documents("n", writes)


COMMITS = {
    "put": lambda store: put(store, {"a": {"p": SMALL, "q": LARGE}, "b": {"q": LARGE}}),
    "grow": lambda store: put(store, {"c": {"r": 3 * LARGE}, "d": {"s": 2 * LARGE}}),
    "upsert": lambda store: put(store, {"a": {"p": SMALL, "t": LARGE}, "c": {"u": SMALL}}, 1),
    "metadata": lambda store: store.update_metadata("n", "b", {"version": 2}, "other"),
    "stage": lambda store: store.stage_packets("n", staged()),
    "replace": lambda store: store.replace_record("n", make_record("t", LARGE // 2)),
    "layers": lambda store: store.replace_record(
        "n", make_record("u", SMALL, enhancement_bytes=LARGE)
    ),
    "share": lambda store: store.put_shared(make_record("header", LARGE)),
    "delete": lambda store: store.delete_document("n", "c"),
    "reuse": lambda store: put(store, {"e": {"v": 2 * LARGE, "w": SMALL}}),
    "pin": lambda store: store.pin_document("n", "a"),
}


def staged():
    records = [make_record(name, LARGE) for name in ("x", "y")]
    return {record.packet_key: record for record in records}


def contents(store):
    """Everything that a store gives back, sizes of files apart."""
    documents, _ = store.list_documents("n", 100)
    shared = make_record("header").packet_key
    return {
        "documents": documents,
        "texts": [store.document_text("n", d.id) for d in documents],
        "embeddings": list(store.iter_embeddings("n")),
        "generation": store.generation("n"),
        "packets": {
            m.packet_key: store.read_packet("n", m.packet_key) for m in store.iter_packets("n")
        },
        "shared": store.has_shared(shared) and store.read_shared(shared),
        "live bytes": store.stats().live_bytes,
    }


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """``data.mdb`` and the contents before and after each commit."""
    path = tmp_path_factory.mktemp("power") / "s.kvps"
    with PacketStore.create(path, make_meta(), map_bytes=1 << 20) as store:
        states = [((path / "data.mdb").read_bytes(), contents(store))]
        for commit in COMMITS.values():
            commit(store)
            states.append(((path / "data.mdb").read_bytes(), contents(store)))
    return dict(zip(COMMITS, pairwise(states), strict=True))


def interrupted(before, after, rng):
    """Return ``data.mdb`` as a loss of power during the data writes of a commit may leave it.

    The meta pages are the old ones. Of the rest, any sectors are new, and the file is as long as
    before or as after; what was never written shows zeros, or what the disk held there once.
    """
    num_bytes = rng.choice((len(before), len(after)))
    surplus_bytes = num_bytes - len(before)
    never_written = rng.choice((bytes, rng.randbytes))(surplus_bytes)
    state = bytearray(before + never_written)
    unit_bytes = rng.choice((SECTOR_BYTES, PAGE_BYTES, 16 * PAGE_BYTES))
    share = rng.choice((0.02, 0.5, 0.98, 1.0))
    for start in range(META_BYTES, num_bytes, unit_bytes):
        end = min(start + unit_bytes, num_bytes)
        if rng.random() < share:
            state[start:end] = after[start:end]
    return bytes(state)


def require_whole(path, data, expected):
    """Open a store on ``data`` and find exactly what is expected; then write to it."""
    path.mkdir()
    (path / "data.mdb").write_bytes(data)
    with PacketStore.open(path, map_bytes=1 << 20) as store:
        assert store.check(deep=True) == []
        assert contents(store) == expected
        put(store, {"after": {"after": LARGE}})
        assert store.check(deep=True) == []
    shutil.rmtree(path)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("num_seeds", [6, pytest.param(250, marks=pytest.mark.slow)])
def test_unsynced_data_leaves_the_state_before(tmp_path, history, in_fork, commit, num_seeds):
    (before, old), (after, _) = history[commit]
    assert before[:META_BYTES] != after[:META_BYTES]

    def lose_power(say):
        for seed in range(num_seeds):
            say(b"seed %d\n" % seed)
            rng = random.Random(f"{commit} {seed}")
            require_whole(tmp_path / "s.kvps", interrupted(before, after, rng), old)

    status, said = in_fork(lose_power)  # LMDB could end the process
    assert status == 0, said


@pytest.mark.parametrize("commit", COMMITS)
def test_a_written_meta_page_leaves_the_state_after(tmp_path, history, in_fork, commit):
    _, (after, new) = history[commit]
    status, said = in_fork(lambda _: require_whole(tmp_path / "s.kvps", after, new))
    assert status == 0, said


def test_the_simulation_can_tell_a_mixture_from_a_state(tmp_path, history, in_fork):
    """The new meta page before its data, which the order of writes rules out, is noticed."""
    (before, _), (after, new) = history["upsert"]
    mixed = after[:META_BYTES] + before[META_BYTES:].ljust(len(after) - META_BYTES, b"\0")
    status, said = in_fork(lambda _: require_whole(tmp_path / "s.kvps", mixed, new))
    assert status != 0, said


def test_a_lost_folder_is_no_store(tmp_path):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    data = (path / "data.mdb").read_bytes()
    shutil.rmtree(path)
    nursery = tmp_path / ".s.kvps.lost"  # the rename was lost, what was renamed was not
    nursery.mkdir()
    (nursery / "data.mdb").write_bytes(data)
    for leave in (lambda: None, path.mkdir):  # or the entries in the folder were
        leave()
        with pytest.raises(NotFoundError):
            PacketStore.open(path)
    with PacketStore.create(path, make_meta()) as store:
        assert contents(store)["documents"] == []


@pytest.mark.parametrize("num_bytes", [0, 100, PAGE_BYTES, META_BYTES, 5 * PAGE_BYTES])
@pytest.mark.parametrize("keep", [0, SECTOR_BYTES, PAGE_BYTES])
def test_a_file_that_was_never_synced_is_refused(tmp_path, in_fork, num_bytes, keep):
    path = tmp_path / "s.kvps"
    PacketStore.create(path, make_meta()).close()
    whole = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(whole[: min(keep, num_bytes)].ljust(num_bytes, b"\0"))

    def open_it(_):
        with pytest.raises(StoreCorruptError):
            PacketStore.open(path)

    status, said = in_fork(open_it)
    assert status == 0, said
