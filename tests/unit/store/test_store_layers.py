"""A packet in two layers: base and enhancement are values of their own under one manifest."""

import dataclasses
import functools

import pytest

from kvpacket_store.errors import CorruptRecordError, NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.packet_manifest import PacketManifest
from kvpacket_store.store.schema import CHUNK_BYTES, Table, packet_row_key
from kvpacket_store.store.synthetic import make_meta, make_record, make_write
from kvpacket_store.store.transaction import Transaction

TWO = make_record("two", 200_000, enhancement_bytes=300_000)
ONE = make_record("one", 200_000)
BASE_CHUNKS, ALL_CHUNKS = 2, 5


@pytest.fixture
def chunks_read(monkeypatch):
    """The keys of all chunks whose bytes, or whose lengths, were looked at."""
    read = []
    for name in ("view", "get", "size"):
        take = getattr(Transaction, name)

        def spying(self, table, key, take=take):
            if table is Table.CHUNKS:
                read.append(int.from_bytes(key[-4:], "big"))
            return take(self, table, key)

        monkeypatch.setattr(Transaction, name, spying)
    return read


def put(store, document_id, *records):
    store.put_documents("n", [make_write(document_id, records)])


def lose(packet_key, numbers):
    def action(txn, tables):
        for number in numbers:
            key = packet_row_key(1, packet_key) + number.to_bytes(4, "big")
            assert txn.delete(key, db=tables[Table.CHUNKS])

    return action


def flip(packet_key, number):
    def action(txn, tables):
        key = packet_row_key(1, packet_key) + number.to_bytes(4, "big")
        value = txn.get(key, db=tables[Table.CHUNKS])
        txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=tables[Table.CHUNKS])

    return action


@pytest.mark.parametrize("base_bytes", [1, CHUNK_BYTES, CHUNK_BYTES + 1])
@pytest.mark.parametrize("enhancement_bytes", [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
def test_both_layers_come_back_whatever_their_lengths(store, base_bytes, enhancement_bytes):
    record = make_record("a", base_bytes, enhancement_bytes=enhancement_bytes)
    put(store, "d", record)
    found = store.read_packet("n", record.packet_key, record.token_ids)
    assert (found.record, found.enhancement) == (record.record, record.enhancement)
    manifest = found.manifest
    assert manifest == store.get_manifest("n", record.packet_key)
    assert manifest.layer_bytes == (base_bytes, enhancement_bytes)
    assert sum(manifest.chunk_sizes) == manifest.stored_bytes == base_bytes + enhancement_bytes
    assert store.has_packet("n", record.packet_key, deep=True)
    assert store.check(deep=True) == []


def test_reading_the_base_touches_only_its_chunks(store, chunks_read):
    put(store, "d", TWO)
    chunks_read.clear()
    found = store.read_base("n", TWO.packet_key, TWO.token_ids)
    assert (found.record, found.enhancement) == (TWO.record, None)
    assert chunks_read == list(range(BASE_CHUNKS))
    assert store.read_record("n", TWO.packet_key) == TWO.record
    chunks_read.clear()
    store.read_packet("n", TWO.packet_key)
    assert chunks_read == list(range(ALL_CHUNKS))


def test_reading_the_enhancement_touches_only_its_chunks(store, chunks_read):
    put(store, "d", TWO)
    found = store.read_base("n", TWO.packet_key)
    chunks_read.clear()
    digest = found.manifest.kv_digest
    rest = store.read_enhancement("n", TWO.packet_key, TWO.token_ids, kv_digest=digest)
    assert rest == TWO.enhancement
    assert chunks_read == list(range(BASE_CHUNKS, ALL_CHUNKS))


def test_an_enhancement_of_other_k_and_v_is_a_miss(store):
    put(store, "d", TWO)
    digest = store.read_base("n", TWO.packet_key).manifest.kv_digest
    again = dataclasses.replace(TWO, kv_digest="of another prefill")
    store.replace_record("n", again)
    with pytest.raises(NotFoundError, match="replaced"):
        store.read_enhancement("n", TWO.packet_key, kv_digest=digest)
    read = store.read_enhancement("n", TWO.packet_key, kv_digest=again.kv_digest)
    assert read == TWO.enhancement
    store.replace_record("n", dataclasses.replace(TWO, enhancement=None))
    with pytest.raises(NotFoundError, match="one layer"):
        store.read_enhancement("n", TWO.packet_key, kv_digest=digest)


@pytest.mark.parametrize("place", [("m", TWO.packet_key), ("n", ONE.packet_key)])
def test_an_enhancement_that_is_not_there_is_a_miss(store, place):
    put(store, "d", TWO)
    with pytest.raises(NotFoundError, match="no packet"):
        store.read_enhancement(*place, kv_digest=TWO.kv_digest)
    with pytest.raises(NotFoundError, match="other tokens"):
        store.read_enhancement("n", TWO.packet_key, (1, 2), kv_digest=TWO.kv_digest)
    store.delete_document("n", "d")
    with pytest.raises(NotFoundError, match="no packet"):
        store.read_enhancement("n", TWO.packet_key, kv_digest=TWO.kv_digest)


def test_the_enhancement_is_read_where_the_base_is_lost(store, behind_its_back):
    put(store, "d", TWO)
    store.close()
    behind_its_back(store.path, lose(TWO.packet_key, range(BASE_CHUNKS)))
    with PacketStore.open(store.path) as opened:
        rest = opened.read_enhancement("n", TWO.packet_key, kv_digest=TWO.kv_digest)
        assert rest == TWO.enhancement
        with pytest.raises(CorruptRecordError, match="chunk 0 is missing"):
            opened.read_base("n", TWO.packet_key)


@pytest.mark.parametrize("number", range(BASE_CHUNKS, ALL_CHUNKS))
def test_every_spoilt_chunk_of_an_enhancement_is_noticed(store, behind_its_back, number):
    put(store, "d", TWO)
    store.close()
    behind_its_back(store.path, flip(TWO.packet_key, number))
    with PacketStore.open(store.path) as opened:
        assert opened.read_base("n", TWO.packet_key).record == TWO.record
        with pytest.raises(CorruptRecordError, match=rf"chunk {number} .* checksum"):
            opened.read_enhancement("n", TWO.packet_key, kv_digest=TWO.kv_digest)
    behind_its_back(store.path, lose(TWO.packet_key, [number]))
    with (
        PacketStore.open(store.path) as opened,
        pytest.raises(CorruptRecordError, match=rf"chunk {number} is missing"),
    ):
        opened.read_enhancement("n", TWO.packet_key, kv_digest=TWO.kv_digest)


def test_the_base_of_one_layer_is_all_of_it(store):
    put(store, "d", ONE)
    assert store.read_base("n", ONE.packet_key) == store.read_packet("n", ONE.packet_key)


def test_the_base_is_read_where_the_enhancement_is_lost(store, behind_its_back):
    put(store, "d", TWO)
    store.close()
    behind_its_back(store.path, lose(TWO.packet_key, range(BASE_CHUNKS, ALL_CHUNKS)))
    with PacketStore.open(store.path) as opened:
        assert opened.read_base("n", TWO.packet_key).record == TWO.record
        with pytest.raises(CorruptRecordError, match="chunk 2 is missing"):
            opened.read_packet("n", TWO.packet_key)
        assert not opened.has_packet("n", TWO.packet_key)
        [found] = opened.check()
        assert (found.packet_key, found.document_ids) == (TWO.packet_key, ("d",))
        opened.replace_record("n", TWO)
        assert opened.read_packet("n", TWO.packet_key).enhancement == TWO.enhancement
        assert opened.check(deep=True) == []


def test_a_spoilt_enhancement_spoils_no_base(store, behind_its_back):
    put(store, "d", TWO)
    store.close()

    behind_its_back(store.path, flip(TWO.packet_key, ALL_CHUNKS - 1))
    with PacketStore.open(store.path) as opened:
        assert opened.read_base("n", TWO.packet_key).record == TWO.record
        with pytest.raises(CorruptRecordError, match=r"chunk 4 .* checksum"):
            opened.read_packet("n", TWO.packet_key)
        [found] = opened.check(deep=True)
        assert found.packet_key == TWO.packet_key


def test_documents_are_read_with_both_layers(store):
    put(store, "d", ONE, TWO)
    _, packets = store.read_document("n", "d")
    found = {key: (packet.record, packet.enhancement) for key, packet in packets.items()}
    assert found == {r.packet_key: (r.record, r.enhancement) for r in (ONE, TWO)}


def test_sizes_count_both_layers_and_leave_with_them(store):
    put(store, "keeps", ONE)
    before = store.stats("n").live_bytes
    put(store, "d", TWO)
    assert store.stats("n").live_bytes - before > TWO.stored_bytes == 500_000
    store.delete_document("n", "d")
    assert store.stats("n").live_bytes == before
    store.stage_packets("n", {TWO.packet_key: TWO})
    assert store.gc(grace_s=0).deleted_packets == 1
    assert store.stats("n").live_bytes == before
    assert store.check(deep=True) == []


@pytest.mark.parametrize(("first", "second"), [(None, 300_000), (300_000, None), (300_000, 1)])
def test_replacing_leaves_nothing_of_the_layers_before(store, first, second):
    put(store, "d", make_record("a", 200_000, enhancement_bytes=first))
    after = make_record("a", 100, enhancement_bytes=second)
    store.replace_record("n", after)
    found = store.read_packet("n", after.packet_key)
    assert (found.record, found.enhancement) == (after.record, after.enhancement)
    assert store.check(deep=True) == []


def test_an_encoding_anew_is_no_use(tmp_path):
    old, new = make_record("old", 9000), make_record("new", 9000)
    with PacketStore.create(tmp_path / "s.kvps", make_meta()) as store:
        for record in (old, new):
            put(store, record.packet_key, record)
        usage = Table.USAGE, packet_row_key(1, old.packet_key)
        with store._environment.read() as tx:
            before = tx.get(*usage)
        anew = make_record("old", 400, enhancement_bytes=500)
        store.replace_record("n", anew, is_use=False)
        with store._environment.read() as tx:
            after = tx.get(*usage)
        assert after[:8] == before[:8]
        assert int.from_bytes(after[8:], "big") == 900


def test_both_layers_give_way_and_come_back_together(tmp_path):
    with PacketStore.create(tmp_path / "s.kvps", make_meta(max_bytes=4 << 20)) as store:
        put(store, "d", TWO)
        for i in range(12):
            put(store, f"d{i}", make_record(f"r{i}", 400_000))
        assert store.get_manifest("n", TWO.packet_key).is_evicted
        assert store.get_manifest("n", TWO.packet_key).layer_bytes == ()
        rest = functools.partial(store.read_enhancement, kv_digest=TWO.kv_digest)
        for read in (store.read_base, store.read_packet, rest):
            with pytest.raises(NotFoundError, match="evicted"):
                read("n", TWO.packet_key)
        store.replace_record("n", TWO)
        assert store.read_packet("n", TWO.packet_key).enhancement == TWO.enhancement
        assert store.check(deep=True) == []


def test_compaction_keeps_both_layers(store):
    put(store, "d", TWO)
    store.compact()
    assert store.read_packet("n", TWO.packet_key).enhancement == TWO.enhancement


@pytest.mark.parametrize("changes", [{"enhancement": b""}, {"record": b""}])
def test_an_empty_layer_is_refused(store, changes):
    with pytest.raises(UsageError, match="empty record"):
        put(store, "d", dataclasses.replace(TWO, **changes))


def test_a_shared_packet_has_one_layer(store):
    with pytest.raises(UsageError, match="2 layers"):
        store.put_shared(TWO)
    assert not store.has_shared(TWO.packet_key)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_bytes": [200_000, 300_000, 1]},
        {"layer_bytes": [200_000]},
        {"layer_bytes": [200_000, 0]},
        {"layer_bytes": [200_000, 1 << 60]},
        {"layer_bytes": [200_000, -300_000]},
        {"layer_bytes": [200_000.0, 300_000]},
        {"layer_bytes": "ab"},
        {"layer_bytes": 500_000},
        {"layer_bytes": []},
        {"chunk_bytes": 0},
        {"chunk_bytes": 1},
        {"chunk_xxh3": []},
    ],
)
def test_a_manifest_that_does_not_add_up_is_refused(store, changes):
    put(store, "d", TWO)
    values = store.get_manifest("n", TWO.packet_key).to_json()
    assert PacketManifest.from_json(values).layer_bytes == (200_000, 300_000)
    with pytest.raises(CorruptRecordError, match="manifest"):
        PacketManifest.from_json(values | changes)
