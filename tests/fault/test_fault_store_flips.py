"""Flipped bytes: the right bytes, or an error by name; never wrong bytes, never a crash."""

import subprocess
import sys

import pytest

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, chunk_key, packet_row_key
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

pytestmark = pytest.mark.fault


def build(path):
    records = [make_record(f"r{i}", 3000 + 20_000 * i) for i in range(12)]
    with PacketStore.create(path, make_meta()) as store:
        for i in range(30):
            chosen = [records[i % 12], records[(5 * i) % 12]]
            store.put_documents("n", [make_write(f"d{i}", chosen)])
        store.put_shared(make_record("header"))
    return records


def test_every_spoilt_chunk_is_noticed(tmp_path):
    path = tmp_path / "s.kvps"
    [*_, record] = build(path)
    content = (path / "data.mdb").read_bytes()
    with PacketStore.open(path) as store:
        key = packet_row_key(1, record.packet_key)
        with store._environment.read() as tx:
            chunks = [tx.get(Table.CHUNKS, chunk_key(key, index)) for index in range(2)]
    for chunk in chunks:
        for at in (0, 1, len(chunk) // 2, len(chunk) - 1):
            place = content.index(chunk) + at
            spoilt = bytearray(content)
            spoilt[place] ^= 0x04
            (path / "data.mdb").write_bytes(spoilt)
            with PacketStore.open(path) as store:
                with pytest.raises(CorruptRecordError, match=record.packet_key):
                    store.read_record("n", record.packet_key)
                found = store.check(deep=True)
                assert [damage.packet_key for damage in found] == [record.packet_key]
                assert found[0].document_ids


# In a process of its own: LMDB follows what is written in its pages, and could end the process.
FLIP = """
import collections, random, sys
from pathlib import Path
from kvpacket_store.errors import KVPacketError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import record_bytes

path, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
data, rng, outcomes = path / "data.mdb", random.Random(seed), collections.Counter()
content = data.read_bytes()
num_pages = len(content) // 4096
tree = [p for p in range(num_pages) if content[4096 * p + 10] & 0x0B]  # branch, leaf or meta

def examine(store):
    damage = store.check(deep=True)
    documents = 0
    try:
        for document in store.list_documents("n", 100)[0]:
            documents += 1
            for key in document.packet_keys:
                record = store.read_record("n", key)
                assert record == record_bytes(key, len(record)), "wrong bytes"
                store.document_text("n", document.id)
    except KVPacketError:
        assert damage, "check did not see what a read met"
        return "reported"
    if damage:
        return "reported"
    assert documents == 30, "documents vanished unreported"
    return "harmless"

for _ in range(rounds):
    page = rng.choice(tree) if rng.random() < 0.7 else rng.randrange(num_pages)
    at = 4096 * page + (rng.randrange(128) if rng.random() < 0.5 else rng.randrange(4096))
    spoilt = bytearray(content)
    spoilt[at] ^= 1 << rng.randrange(8)
    data.write_bytes(spoilt)
    try:
        with PacketStore.open(path) as store:
            outcomes[examine(store)] += 1
    except KVPacketError:
        outcomes["refused"] += 1
    except BaseException:
        print("at", at, file=sys.stderr)
        raise
print(dict(outcomes))
"""


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 80), pytest.param(2, 2000, marks=pytest.mark.slow)]
)
def test_flipped_bytes_anywhere_are_reported_or_harmless(tmp_path, seed, rounds):
    path = tmp_path / "s.kvps"
    build(path)
    child = subprocess.run(
        [sys.executable, "-c", FLIP, str(path), str(seed), str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "reported" in child.stdout
