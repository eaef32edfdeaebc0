"""Compiled code is kept beside the source, else in a user cache, else nowhere: it runs anyway."""

import os
import subprocess
import sys

import pytest

SOURCE = """
from kvpacket_store.codec.compiled import compiled

@compiled
def successor(number):
    return number + 1

print(successor(41), sum(successor.stats.cache_hits.values()))
"""


@pytest.fixture
def folders(tmp_path):
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "module.py").write_text(SOURCE)
    return package, cache


def run(package, cache):
    """Import the module in a process of its own; return (what it says, hits in the cache)."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    paths = [str(package), *filter(None, sys.path)]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, "-c", "import module"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    value, hits = done.stdout.split()
    return int(value), int(hits)


def indexes(folder):
    return sorted(path.name for path in folder.rglob("*.nbi"))


def test_beside_the_source(folders):
    package, cache = folders
    assert run(package, cache) == (42, 0)
    assert len(indexes(package)) == 1
    assert run(package, cache) == (42, 1)
    assert not indexes(cache)


def test_in_the_user_s_cache_where_the_package_cannot_be_written(folders):
    package, cache = folders
    (package / "__pycache__").write_text("a file: no folder can be made here, whoever asks")
    assert run(package, cache) == (42, 0)
    assert len(indexes(cache)) == 1
    assert run(package, cache) == (42, 1)


def test_nowhere_where_neither_can_be_written(folders):
    package, cache = folders
    (package / "__pycache__").write_text("a file")
    cache.write_text("another")
    assert run(package, cache) == (42, 0)
    assert run(package, cache) == (42, 0)
    assert not indexes(package)
