"""What a child does in `test_retrieve_snapshot_kill.py`: commit, then search, which snapshots."""

import os
import random
import signal
import zlib
from itertools import count
from pathlib import Path

import numpy as np

from kvpacket_store.retrieve import Retriever
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_record, make_write


class Directions:
    """Equal texts have equal directions."""

    name, digest, dimension = "directions", "d" * 64, 8

    def embed(self, texts):
        rows = [np.random.default_rng(zlib.crc32(t.encode())).normal(size=8) for t in texts]
        return np.stack([row / np.linalg.norm(row) for row in rows]).astype("<f4")


def change(store, number):
    """Put or delete one document of six; the last one stays."""
    rng = random.Random(number)
    document_id = f"d{rng.randrange(6)}"
    if number % 4 == 3 and store.count("n") > 1 and store.has_document("n", document_id):
        store.delete_document("n", document_id)
        return
    records = [make_record(f"{document_id} {number} {i}", 500) for i in range(rng.randint(1, 3))]
    write = make_write(document_id, records, version=number)
    vectors = Directions().embed([record.packet_key for record in records])
    rows = [vector.tobytes() for vector in vectors]
    store.put_document("n", write.manifest, write.records, rows)


def require_in_step(store, retriever=None):
    """Find exactly the segments that the store has, by a search that may start from a snapshot."""
    if retriever is None:
        retriever = Retriever(store, Directions(), store.path / "index", wait_for_rebuild=True)
    hits = retriever.retrieve("anything", "n", 1000)
    found = {(hit.document_id, hit.segment_index, hit.packet_key) for hit in hits}
    assert found == {tuple(row[:3]) for row in store.iter_embeddings("n")}
    assert len(found) == len(hits)


def main(connection, path, first, die_at=None):
    """Change and search for ever; ``die_at`` a point of the first snapshot."""
    if die_at is not None:
        _die_at(die_at)
    with PacketStore.open(path) as store:
        retriever = Retriever(store, Directions(), path / "index", wait_for_rebuild=True)
        for number in count(first):
            change(store, number)
            connection.send(number)
            require_in_step(store, retriever)


def _die_at(point):
    replace = Path.replace

    def dying(self, target):
        if point == "renamed":
            replace(self, target)
        os.kill(os.getpid(), signal.SIGKILL)

    if point == "written":
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    else:
        Path.replace = dying


if __name__ == "__work__":
    main(*globals()["job"])
