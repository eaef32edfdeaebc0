"""SIGKILL while a checkpoint of a training run is written: it goes on as if nothing had been."""

import signal

import pytest

pytestmark = pytest.mark.fault


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("Rhine", "Elbe", "Oder", "Main"):
        text = f"The {name} is a river. It meets the old town of {name}burg in the north."
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.fixture
def train(start_work, texts, tmp_path):
    """A function: folder's name, where to die → the adapter's digest, or the signal that killed."""

    def run(name, die_at=None):
        child, connection = start_work("training_work.py", texts, tmp_path / name, die_at)
        try:
            return connection.recv()
        except EOFError:
            child.join()
            return -child.exitcode

    return run


def test_a_run_that_was_killed_ends_with_the_same_bits(train):
    """A checkpoint syncs its file, then the folder: first that of the start, then each step's."""
    whole = train("whole")
    for die_at in (3, 4, 7):
        name = f"killed-{die_at}"
        assert train(name, die_at) == signal.SIGKILL
        assert train(name) == whole
