"""Promise: a process killed while it writes a snapshot leaves the old one, the new one, or none."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from kvpacket_store.retrieve.snapshot import SnapshotKey, load_snapshot

pytestmark = pytest.mark.fault

WRITER = """
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from kvpacket_store.retrieve import PacketIndex
from kvpacket_store.retrieve.snapshot import SnapshotKey, save_snapshot

eye = np.eye(64, dtype="<f4")
indexes = []
for parity in (0, 1):
    rows = [(f"parity{parity}", n, "k", eye[n % 64].tobytes()) for n in range(2000 + parity)]
    source = SimpleNamespace(iter_embeddings=lambda namespace, rows=rows: iter(rows))
    indexes.append(PacketIndex.build(source, "ns", 64))
for generation in count():
    key = SnapshotKey("ns", generation % 2, "e", 64)
    save_snapshot(Path(sys.argv[1]), key, indexes[generation % 2])
    print(generation, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_snapshot(tmp_path):
    kills = 8
    for seed in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout.readline() == b"0\n"
        time.sleep(np.random.default_rng(seed).uniform(0, 0.05))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        loaded = {
            parity: load_snapshot(tmp_path, SnapshotKey("ns", parity, "e", 64)) for parity in (0, 1)
        }
        (parity,) = [parity for parity, index in loaded.items() if index is not None]
        assert len(loaded[parity]) == 2000 + parity
        assert loaded[parity].ids.document_ids == (f"parity{parity}",)
        assert loaded[parity].faiss_index.ntotal == len(loaded[parity].ids)
