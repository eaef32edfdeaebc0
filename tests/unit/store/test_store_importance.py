"""What tells how much each position of a packet is needed lies beside its records."""

import dataclasses

import pytest

from kvpacket_store.errors import CorruptRecordError, NotFoundError, StoreCorruptError, UsageError
from kvpacket_store.store import PacketStore, StoreMeta
from kvpacket_store.store.packet_manifest import PacketManifest
from kvpacket_store.store.schema import Table, packet_row_key
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

TWO = make_record("two", 200_000, enhancement_bytes=300_000, importance_bytes=70_000)
ONE = make_record("one", 200_000, importance_bytes=100)
BARE = make_record("bare", 200_000, enhancement_bytes=10)


def put(store, *records):
    for record in records:
        store.put_documents("n", [make_write(record.packet_key[:8], [record])])


@pytest.mark.parametrize("record", [ONE, TWO, BARE])
def test_it_comes_back_and_records_are_what_they_were(store, record):
    put(store, record)
    assert store.read_importance("n", record.packet_key) == record.importance
    found = store.read_packet("n", record.packet_key, record.token_ids)
    assert (found.record, found.enhancement) == (record.record, record.enhancement)
    assert store.read_base("n", record.packet_key).record == record.record
    assert found.manifest.num_records == (1 if record is ONE else 2)
    assert found.manifest.stored_bytes == record.stored_bytes
    assert store.has_packet("n", record.packet_key, deep=True)
    assert store.check(deep=True) == []


def test_a_packet_in_one_layer_has_no_enhancement_for_all_that(store):
    put(store, ONE)
    with pytest.raises(NotFoundError, match="one layer"):
        store.read_enhancement("n", ONE.packet_key, kv_digest=ONE.kv_digest)


def test_records_are_read_where_it_is_damaged(store, behind_its_back):
    put(store, TWO)
    number = store.get_manifest("n", TWO.packet_key).layer_chunks(2)[0]
    key = packet_row_key(1, TWO.packet_key) + number.to_bytes(4, "big")

    def spoil(txn, tables):
        value = txn.get(key, db=tables[Table.CHUNKS])
        txn.put(key, value[:-1] + bytes([value[-1] ^ 1]), db=tables[Table.CHUNKS])

    store.close()
    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as again:
        with pytest.raises(CorruptRecordError, match="does not match its checksum"):
            again.read_importance("n", TWO.packet_key)
        assert again.read_packet("n", TWO.packet_key).record == TWO.record
        assert [damage.packet_key for damage in again.check(deep=True)] == [TWO.packet_key]


def test_it_goes_when_the_packet_goes(store):
    put(store, TWO)
    store.delete_document("n", TWO.packet_key[:8])
    with pytest.raises(NotFoundError):
        store.read_importance("n", TWO.packet_key)
    assert store.check(deep=True) == []
    assert store.count("n") == 0


def test_a_record_can_take_the_place_of_one_that_had_it(store):
    put(store, TWO)
    store.replace_record("n", dataclasses.replace(TWO, importance=None))
    assert store.read_importance("n", TWO.packet_key) is None
    assert store.check(deep=True) == []


@pytest.mark.parametrize("layer_bytes", [[], [5], [5, 5, 5, 5]])
def test_a_manifest_that_cannot_be_so_is_refused(store, layer_bytes):
    put(store, TWO)
    values = store.get_manifest("n", TWO.packet_key).to_json()
    assert PacketManifest.from_json(values).has_importance
    spoilt = values | {"layer_bytes": layer_bytes, "chunk_xxh3": ["0" * 16] * len(layer_bytes)}
    with pytest.raises(CorruptRecordError, match="do not add up"):
        PacketManifest.from_json(spoilt)


def test_a_manifest_without_it_is_the_row_that_it_was_before(store):
    put(store, BARE)
    assert "has_importance" not in store.get_manifest("n", BARE.packet_key).to_json()


def test_a_store_says_whether_new_packets_have_it():
    plain = make_meta()
    assert "importance" not in plain.to_dict()
    assert not StoreMeta.from_dict(plain.to_dict()).importance
    wanted = dataclasses.replace(plain, importance=True)
    assert StoreMeta.from_dict(wanted.to_dict()) == wanted
    with pytest.raises(UsageError, match="true or false"):
        dataclasses.replace(plain, importance=1)
    with pytest.raises(StoreCorruptError):
        StoreMeta.from_dict(wanted.to_dict() | {"importance": "yes"})
