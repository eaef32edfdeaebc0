"""Small values beside the documents."""

import pytest

from kvpacket_store.errors import ReadOnlyError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import META_VALUE, Table

LONG = "x" * 900


def test_values_come_back_by_key_in_order_and_alone_in_their_collection(store):
    values = {f"key {i:04}": bytes([i % 256]) * i for i in range(600)} | {LONG: b"long", "é": b""}
    store.put_values("a", "one", values)
    store.put_values("a", "two", {"key 0001": b"other"})
    store.put_values("b", "one", {"key 0002": b"theirs"})
    assert dict(store.iter_values("a", "one")) == values
    assert [key for key, _ in store.iter_values("a", "one")][:3] == [
        "key 0000",
        "key 0001",
        "key 0002",
    ]
    assert store.get_values("a", "one", ["key 0007", LONG, "nobody"]) == {
        "key 0007": bytes([7]) * 7,
        LONG: b"long",
    }
    assert dict(store.iter_values("a", "two")) == {"key 0001": b"other"}
    assert store.get_values("b", "two", ["key 0001"]) == {}


def test_values_are_replaced_and_deleted(store):
    store.put_values("a", "one", {"k": b"1", "l": b"2"})
    store.put_values("a", "one", {"k": b"3"})
    assert store.delete_values("a", "one", ["l", "nobody"]) == 1
    assert store.delete_values("a", "one", []) == 0
    assert dict(store.iter_values("a", "one")) == {"k": b"3"}


def test_they_survive_opening_again_and_compaction(store):
    store.put_values("a", "one", {"k": b"1"})
    store.compact()
    path = store.path
    store.close()
    with PacketStore.open(path) as again:
        assert again.get_values("a", "one", ["k"]) == {"k": b"1"}
        assert again.check(deep=True) == []
    with PacketStore.open(path, read_only=True) as reading:
        assert dict(reading.iter_values("a", "one")) == {"k": b"1"}
        with pytest.raises(ReadOnlyError):
            reading.put_values("a", "one", {"k": b"2"})


def test_a_damaged_value_is_a_missing_one(store, behind_its_back):
    store.put_values("a", "one", {"k": b"1", "l": b"2"})
    path = store.path
    store.close()

    def spoil(txn, tables):
        rows = [k for k, _ in txn.cursor(tables[Table.META]) if k.startswith(META_VALUE)]
        txn.put(rows[0], b"\x00" * 50, db=tables[Table.META])

    behind_its_back(path, spoil)
    with PacketStore.open(path) as again:
        assert again.get_values("a", "one", ["k", "l"]) == {"l": b"2"}
        assert dict(again.iter_values("a", "one")) == {"l": b"2"}


@pytest.mark.parametrize(
    ("namespace", "collection", "key"),
    [("", "one", "k"), ("a", "", "k"), ("a", "one", ""), ("a", "one", "x" * 1001)],
)
def test_what_is_no_name_is_refused(store, namespace, collection, key):
    with pytest.raises(UsageError):
        store.put_values(namespace, collection, {key: b""})
