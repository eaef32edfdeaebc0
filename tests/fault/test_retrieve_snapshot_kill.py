"""A process killed while it writes a snapshot leaves the old one, the new one, or none.

Whatever it leaves, searches name what the store holds: the store commits first, the snapshot bears
the generation that it was made from, and any other one is built again.
"""

from __future__ import annotations

import random
import runpy
import signal
import time
from pathlib import Path

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta

pytestmark = pytest.mark.fault

KILLS = 10
MANY_KILLS = 200
WORK = runpy.run_path(str(Path(__file__).with_name("snapshot_work.py")))


@pytest.fixture
def path(tmp_path):
    PacketStore.create(tmp_path / "s.kvps", make_meta()).close()
    return tmp_path / "s.kvps"


def require_in_step(path):
    with PacketStore.open(path) as store:
        WORK["require_in_step"](store)
        assert store.check(deep=True) == []


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.slow)])
def test_searches_keep_step_with_the_store_after_a_kill(path, start_work, kills):
    for seed in range(kills):
        rng = random.Random(seed)
        child, connection = start_work("snapshot_work.py", path, 1000 * seed)
        for _ in range(rng.randint(1, 5)):
            connection.recv()
        time.sleep(rng.uniform(0, 0.02))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        try:
            require_in_step(path)
        except BaseException as error:
            error.add_note(f"kill with seed {seed}")
            raise


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("point", ["written", "synced", "renamed"])
def test_killed_between_the_commit_and_the_snapshot(path, start_work, point, has_snapshot):
    """Written but not synced, synced but not renamed, renamed but the folder not synced."""
    if has_snapshot:
        with PacketStore.open(path) as store:
            WORK["change"](store, 0)
            WORK["require_in_step"](store)
    child, connection = start_work("snapshot_work.py", path, 1, point)
    assert connection.recv() == 1
    child.join()
    assert child.exitcode == -signal.SIGKILL
    leftovers = list((path / "index").glob("*.tmp"))
    assert len(leftovers) == (point != "renamed")
    require_in_step(path)
    assert len(list((path / "index").glob("*.index"))) == 1
    if point != "renamed":
        assert not set(leftovers) & set((path / "index").iterdir())


@pytest.mark.parametrize("damage", ["cut", "zeros", "zeros at the end", "stale", "empty"])
def test_a_snapshot_whose_writes_were_lost_is_built_again(path, damage):
    """Power loss: any prefix, or zeros, in the place of what was never synced."""
    with PacketStore.open(path) as store:
        for number in range(3):
            WORK["change"](store, number)
        WORK["require_in_step"](store)
        (snapshot,) = (path / "index").glob("*.index")
        whole = snapshot.read_bytes()
        if damage == "stale":  # the rename was lost: the one before is still there
            WORK["change"](store, 4)
    states = {
        "cut": [whole[:end] for end in range(1, len(whole), 7)],
        "zeros": [bytes(len(whole))],
        "zeros at the end": [
            whole[:end].ljust(len(whole), b"\0") for end in range(0, len(whole), 64)
        ],
        "stale": [whole],
        "empty": [b""],
    }[damage]
    with PacketStore.open(path) as store:
        for state in states:
            snapshot.write_bytes(state)
            WORK["require_in_step"](store)
        assert snapshot.read_bytes() != states[-1]
