import dataclasses

import numpy as np
import pytest

from kvpacket_store.errors import CorruptRecordError, DocumentError, NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import CHUNK_BYTES, Table
from kvpacket_store.store.synthetic import make_record, make_write
from kvpacket_store.store.transaction import Transaction


def put(store, document_id, *records, namespace="n"):
    store.put_documents(namespace, [make_write(document_id, records)])


@pytest.mark.parametrize(
    "num_bytes",
    [1, 4080, 4081, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 1_000_003],
)
def test_a_record_comes_back_whatever_its_length(store, num_bytes):
    record = make_record("a", num_bytes)
    put(store, "d", record)
    assert store.read_record("n", record.packet_key, record.token_ids) == record.record
    manifest = store.get_manifest("n", record.packet_key)
    assert sum(manifest.chunk_sizes) == manifest.stored_bytes == num_bytes
    assert manifest.num_chunks == -(-num_bytes // CHUNK_BYTES)


def test_the_manifest_says_what_was_put(store):
    record = make_record("a")
    put(store, "d", record)
    put(store, "e", record)
    manifest = store.get_manifest("n", record.packet_key)
    for name in ("packet_key", "token_ids", "positions", "raw_bytes", "kv_digest", "engine"):
        assert getattr(manifest, name) == getattr(record, name)
    assert (manifest.refcount, manifest.namespace, manifest.tokens) == (2, "n", 8)


def test_manifest_and_record_are_read_as_of_one_moment(store, behind_its_back):
    record = make_record("a", 300_000)
    put(store, "d", record)
    found = store.read_packet("n", record.packet_key, record.token_ids)
    assert found == (store.get_manifest("n", record.packet_key), record.record, None)
    with pytest.raises(NotFoundError, match="other tokens"):
        store.read_packet("n", record.packet_key, (1, 2))
    with pytest.raises(NotFoundError, match="no packet"):
        store.read_packet("m", record.packet_key)
    store.close()
    behind_its_back(store.path, flip_last_chunk)
    with (
        PacketStore.open(store.path) as opened,
        pytest.raises(CorruptRecordError, match="chunk 2"),
    ):
        opened.read_packet("n", record.packet_key)


def test_deep_looking_reads_the_bytes(store, behind_its_back):
    record = make_record("a", 300_000)
    key, tokens = record.packet_key, record.token_ids
    put(store, "d", record)
    assert store.has_packet("n", key, deep=True)
    assert store.has_packet("n", key, tokens, deep=True)
    assert not store.has_packet("n", key, (1, 2), deep=True)
    assert not store.has_packet("m", key, deep=True)
    store.close()
    behind_its_back(store.path, flip_last_chunk)
    with PacketStore.open(store.path) as opened:
        assert opened.has_packet("n", key)
        assert not opened.has_packet("n", key, deep=True)


def flip_last_chunk(txn, tables):
    with txn.cursor(db=tables[Table.CHUNKS]) as cursor:
        assert cursor.last()
        key, value = cursor.item()
    txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=tables[Table.CHUNKS])


def test_a_packet_is_not_there_for_another_namespace(store):
    record = make_record("a")
    put(store, "d", record)
    put(store, "d", make_record("b"), namespace="m")
    assert store.has_packet("n", record.packet_key)
    for namespace in ("m", "never used"):
        assert not store.has_packet(namespace, record.packet_key)
        with pytest.raises(NotFoundError, match=record.packet_key):
            store.read_record(namespace, record.packet_key)
        with pytest.raises(NotFoundError, match=record.packet_key):
            store.get_manifest(namespace, record.packet_key)


def test_equal_keys_with_other_tokens_are_a_miss(store):
    record = make_record("a")
    put(store, "d", record)
    other = (1, 2, 3)
    assert store.has_packet("n", record.packet_key, record.token_ids)
    assert not store.has_packet("n", record.packet_key, other)
    with pytest.raises(NotFoundError, match="other tokens"):
        store.read_record("n", record.packet_key, other)


def test_equal_keys_with_other_tokens_are_refused(store):
    record = make_record("a")
    put(store, "d", record)
    forged = dataclasses.replace(record, token_ids=(1, 2, 3), record=b"forged")
    with pytest.raises(DocumentError, match="other tokens"):
        put(store, "e", forged)
    assert not store.has_document("n", "e")
    assert store.read_record("n", record.packet_key) == record.record


def test_a_packet_that_is_there_is_not_written_again(store):
    record = make_record("a")
    put(store, "d", record)
    put(store, "e", dataclasses.replace(record, record=b"another run", kv_digest="other"))
    assert store.read_record("n", record.packet_key) == record.record
    assert store.get_manifest("n", record.packet_key).kv_digest == record.kv_digest


def test_replacing_a_record_keeps_its_references(store):
    record = make_record("a", 300_000)
    put(store, "d", record)
    put(store, "e", record)
    store.replace_record("n", dataclasses.replace(record, record=b"mended", raw_bytes=7))
    assert store.read_record("n", record.packet_key) == b"mended"
    assert store.get_manifest("n", record.packet_key).refcount == 2
    assert store.stats("n").raw_bytes == 7
    assert store.check(deep=True) == []


def test_replacing_a_record_that_nobody_refers_to_is_refused(store):
    with pytest.raises(NotFoundError, match="no packet"):
        store.replace_record("n", make_record("a"))
    put(store, "d", make_record("b"))
    with pytest.raises(NotFoundError, match="no packet"):
        store.replace_record("n", make_record("a"))


def test_a_repair_keeps_the_tokens(store):
    record = make_record("a")
    put(store, "d", record)
    with pytest.raises(UsageError, match="other tokens"):
        store.replace_record("n", dataclasses.replace(record, token_ids=(9,)))


def test_staged_packets_wait_for_their_document(store):
    records = [make_record(name, 200_000) for name in "abc"]
    store.stage_packets("n", {r.packet_key: r for r in records})
    assert store.count("n") == 0
    assert store.generation("n") == 0
    assert [store.get_manifest("n", r.packet_key).refcount for r in records] == [0, 0, 0]
    write = make_write("d", records[:2])
    store.put_document("n", write.manifest, {}, write.embeddings)
    assert store.check(deep=True) == []
    assert store.gc(grace_s=0).deleted_packets == 1
    assert [store.has_packet("n", r.packet_key) for r in records] == [True, True, False]
    assert store.stats("n").packets == 2
    assert store.check(deep=True) == []


def test_shared_packets_belong_to_no_namespace(store):
    header = make_record("header", 150_000, num_tokens=0)
    store.put_shared(header)
    store.put_shared(header)
    assert store.has_shared(header.packet_key, ())
    assert not store.has_shared(header.packet_key, (1,))
    assert store.read_shared(header.packet_key, ()) == header.record
    assert store.get_shared_manifest(header.packet_key).positions == 16
    assert not store.has_packet("n", header.packet_key)
    assert store.namespaces() == []
    sizes = store.stats()
    assert (sizes.packets, sizes.raw_bytes) == (0, header.raw_bytes)
    assert sizes.live_bytes > len(header.record)
    assert store.check(deep=True) == []
    with pytest.raises(NotFoundError, match="store's own"):
        store.read_shared(make_record("b").packet_key)


def test_iterating_packets_pages_through_all_of_them(store):
    records = [make_record(f"r{i}", 10) for i in range(600)]
    put(store, "d", *records)
    put(store, "d", make_record("other"), namespace="m")
    found = [manifest.packet_key for manifest in store.iter_packets("n")]
    assert found == sorted(record.packet_key for record in records)
    everything = [(manifest.namespace, manifest.packet_key) for manifest in store.iter_packets()]
    assert len(everything) == 601
    assert everything[0] == ("m", make_record("other").packet_key)


@pytest.mark.parametrize("key", ["", "ab", "A" * 64, "g" * 64, "0" * 63, "0" * 65, 5, None])
def test_what_is_no_packet_key_is_refused(store, key):
    put(store, "d", make_record("a"))
    for call in (store.has_packet, store.get_manifest, store.read_record):
        with pytest.raises(UsageError, match="packet key"):
            call("n", key)


def test_an_empty_record_is_refused(store):
    with pytest.raises(UsageError, match="empty record"):
        put(store, "d", make_record("a", 0))


@pytest.mark.parametrize(
    "changes", [{"positions": np.int64(3)}, {"token_ids": (np.int64(3),)}, {"record": "text"}]
)
def test_what_is_not_plain_is_refused_by_name(store, changes):
    record = dataclasses.replace(make_record("a"), **changes)
    with pytest.raises(UsageError, match=record.packet_key):
        put(store, "d", record)


def test_no_view_of_the_database_escapes(store: PacketStore, monkeypatch):
    views = []
    take_view = Transaction.view

    def spying_view(self, table, key):
        views.append(take_view(self, table, key))
        return views[-1]

    monkeypatch.setattr(Transaction, "view", spying_view)
    record = make_record("a", 400_000)
    put(store, "d", record)
    read = store.read_record("n", record.packet_key)
    assert len(views) == 4
    for view in views:
        with pytest.raises(ValueError, match="released"):
            view.tobytes()
    assert type(read) is bytes
    for version in range(3):  # commits that reuse the pages that were read
        put(store, "d", make_record(f"b{version}", 400_000))
    assert read == record.record
