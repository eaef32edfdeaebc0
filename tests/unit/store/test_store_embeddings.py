import dataclasses

import pytest

from kvpacket_store.errors import CorruptRecordError, DocumentError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, document_key, embedding_key
from kvpacket_store.store.synthetic import make_record, make_write

A, B, C = (make_record(name, 5_000) for name in "abc")
DOCUMENT = document_key(1, "d")


def put(store, document_id, *records, version=0):
    store.put_documents("n", [make_write(document_id, records, version=version)])


def found(store):
    return [(name, index, values) for name, index, _, values in store.iter_embeddings("n")]


def test_embeddings_are_replaced_alone(store):
    put(store, "d", A, B)
    put(store, "e", A)
    [*_, other] = found(store)
    manifest, before = store.get_document("n", "d"), store.generation("n")
    assert store.put_embeddings("n", manifest, [b"1234" * 2, b"5678" * 2])
    assert found(store) == [("d", 0, b"1234" * 2), ("d", 1, b"5678" * 2), other]
    assert store.generation("n") > before
    assert store.has_embeddings("n", manifest)
    assert store.get_document("n", "d") == manifest
    assert store.check(deep=True) == []


def test_embeddings_come_to_a_document_without_any(store):
    write = make_write("d", [A, B])
    store.put_document("n", write.manifest, write.records)
    assert store.put_embeddings("n", write.manifest, write.embeddings)
    assert store.has_embeddings("n", write.manifest)


def test_embeddings_of_a_version_that_is_gone_are_not_written(store):
    put(store, "d", A, B)
    manifest = store.get_document("n", "d")
    put(store, "d", A, C)
    kept, generation = found(store), store.generation("n")
    rows = [b"1234", b"5678"]
    assert not store.put_embeddings("n", manifest, rows)
    hash_alone = dataclasses.replace(store.get_document("n", "d"), content_hash="another")
    assert not store.put_embeddings("n", hash_alone, rows)
    assert not store.put_embeddings("m", manifest, rows)
    assert (found(store), store.generation("n")) == (kept, generation)
    store.delete_document("n", "d")
    assert not store.put_embeddings("n", manifest, rows)
    assert (found(store), store.count()) == ([], 0)


def test_metadata_that_changed_meanwhile_stays(store):
    put(store, "d", A)
    manifest = store.get_document("n", "d")
    store.update_metadata("n", "d", {"version": 9}, "nine")
    assert store.put_embeddings("n", manifest, [b"1234"])
    assert store.get_document("n", "d").metadata == {"version": 9}


@pytest.mark.parametrize("rows", [[], [b"1234"], [b"1234", b"12"], [b"", b""]])
def test_rows_that_do_not_fit_are_refused(store, rows):
    put(store, "d", A, B)
    with pytest.raises(DocumentError, match="'d'"):
        store.put_embeddings("n", store.get_document("n", "d"), rows)


def test_a_damaged_document_is_named(store, behind_its_back):
    put(store, "d", A)
    manifest = store.get_document("n", "d")
    store.close()
    behind_its_back(store.path, lambda txn, t: txn.put(DOCUMENT, b"x", db=t[Table.DOCUMENTS]))
    with PacketStore.open(store.path) as opened, pytest.raises(CorruptRecordError, match="'d'"):
        opened.put_embeddings("n", manifest, [b"1234"])


def lose_embedding(document, index):
    key = embedding_key(document, index)
    return lambda txn, tables: txn.delete(key, db=tables[Table.EMBEDDINGS])


def test_a_lost_embedding_hides_none_of_the_old_version_from_an_upsert(store, behind_its_back):
    put(store, "d", A, B, C)
    put(store, "d\x00", A, B)
    put(store, "d\x00\x00\x00\x00", B)
    store.close()
    behind_its_back(store.path, lose_embedding(DOCUMENT, 1))
    with PacketStore.open(store.path) as opened:
        [damage] = opened.check()
        assert damage.reason == "2 embeddings for 3 segments"
        assert [row[:2] for row in found(opened)][:2] == [("d", 0), ("d", 2)]
        put(opened, "d", B)
        assert opened.check(deep=True) == []
        names = [row[0] for row in found(opened)]
        assert names == ["d", "d\x00", "d\x00", "d\x00\x00\x00\x00"]
        opened.delete_document("n", "d")
        assert [row[0] for row in found(opened)] == names[1:]
        assert opened.check(deep=True) == []


def test_embeddings_that_no_document_names_are_not_retrieved(store, behind_its_back):
    put(store, "d", A)
    put(store, "e", B)
    store.close()

    def copy(txn, tables):
        row = bytes(txn.get(embedding_key(DOCUMENT, 0), db=tables[Table.EMBEDDINGS]))
        for document, index in (("d", 1), ("e", 0), ("ghost", 0)):
            txn.put(
                embedding_key(document_key(1, document), index), row, db=tables[Table.EMBEDDINGS]
            )

    behind_its_back(store.path, copy)
    with PacketStore.open(store.path) as opened:
        assert [row[:2] for row in found(opened)] == [("d", 0)]
