"""What was lost or spoilt behind the store's back can be put again."""

import pytest

from kvpacket_store.errors import CorruptRecordError, NotFoundError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, document_key, packet_row_key
from kvpacket_store.store.synthetic import make_record, make_write

A, B, C = (make_record(name, 150_000) for name in "abc")


def put(store, document_id, *records):
    store.put_documents("n", [make_write(document_id, records)])


def has(store, *records):
    return [store.has_packet("n", record.packet_key) for record in records]


def lose_packet(record):
    def action(txn, tables):
        key = packet_row_key(1, record.packet_key)
        assert txn.delete(key, db=tables[Table.MANIFESTS])
        for index in range(2):
            assert txn.delete(key + index.to_bytes(4, "big"), db=tables[Table.CHUNKS])

    return action


def test_a_packet_lost_behind_our_back_is_made_again(store, behind_its_back):
    put(store, "d", A, B)
    put(store, "e", A)
    store.close()
    behind_its_back(store.path, lose_packet(A))
    with PacketStore.open(store.path) as opened:
        assert has(opened, A, B) == [False, True]
        damage = opened.check()
        assert ("d" in damage[0].document_ids, damage[0].packet_key) == (True, A.packet_key)
        with pytest.raises(NotFoundError, match="ingest"):
            opened.read_document("n", "d")
        put(opened, "d", A, B)
        assert has(opened, A, B) == [True, True]
        assert opened.get_manifest("n", A.packet_key).refcount == 2
        assert opened.check(deep=True) == []


def test_a_lost_packet_can_be_replaced(store, behind_its_back):
    put(store, "d", A, B)
    store.close()
    behind_its_back(store.path, lose_packet(A))
    with PacketStore.open(store.path) as opened:
        opened.replace_record("n", A)
        assert opened.read_record("n", A.packet_key) == A.record
        assert opened.check(deep=True) == []


def test_deleting_a_document_whose_packet_is_lost_keeps_the_counters_right(store, behind_its_back):
    put(store, "d", A, B)
    put(store, "e", B)
    store.close()
    behind_its_back(store.path, lose_packet(A))
    with PacketStore.open(store.path) as opened:
        opened.delete_document("n", "d")
        assert opened.stats("n").packets == 1
        assert opened.check(deep=True) == []


def test_a_damaged_document_can_be_put_again(store, behind_its_back):
    put(store, "d", A, B)
    put(store, "e", B)
    store.close()

    def spoil(txn, tables):
        key = document_key(1, "d")
        row = bytearray(txn.get(key, db=tables[Table.DOCUMENTS]))
        row[-1] ^= 1
        txn.put(key, bytes(row), db=tables[Table.DOCUMENTS])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        with pytest.raises(CorruptRecordError, match="'d'"):
            opened.get_document("n", "d")
        damage = opened.check()
        assert [found.document_ids for found in damage] == [("d",)]
        put(opened, "d", C)
        assert has(opened, A, B, C) == [False, True, True]
        assert opened.check(deep=True) == []
