import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, document_key, embedding_key, packet_row_key
from kvpacket_store.store.synthetic import make_record, make_write

A, B = make_record("a", 300_000), make_record("b", 300_000)
KEY_A, DOCUMENT = packet_row_key(1, A.packet_key), document_key(1, "d")


@pytest.fixture
def damaged(store, behind_its_back):
    """A function: change a store of two documents behind its back, and check it."""

    def change(action, *, deep=False):
        store.put_documents("n", [make_write("d", [A, B]), make_write("e", [B])])
        store.put_shared(make_record("header"))
        assert store.check(deep=True) == []
        store.close()
        behind_its_back(store.path, action)
        with PacketStore.open(store.path) as opened:
            return opened.check(deep=deep)

    return change


def flip(table, key, at=-1):
    def action(txn, tables):
        value = bytearray(txn.get(key, db=tables[table]))
        value[at] ^= 0x10
        txn.put(key, bytes(value), db=tables[table])

    return action


def delete(table, key, value=b""):
    def action(txn, tables):
        assert txn.delete(key, value, db=tables[table])

    return action


def put(table, key, value):
    return lambda txn, tables: txn.put(key, value, db=tables[table])


def test_a_missing_packet_is_found_with_its_documents(damaged):
    found = damaged(delete(Table.MANIFESTS, KEY_A))
    assert (found[0].packet_key, found[0].document_ids) == (A.packet_key, ("d",))
    assert found[0].namespace == "n"
    assert any("without a manifest" in damage.reason for damage in found)


def test_a_missing_chunk_is_found_with_its_documents(damaged):
    key = packet_row_key(1, B.packet_key)
    [found] = damaged(delete(Table.CHUNKS, key + (1).to_bytes(4, "big")))
    assert (found.packet_key, found.document_ids) == (B.packet_key, ("d", "e"))
    assert "chunk 1" in found.reason


def test_a_chunk_too_many_is_found(damaged):
    [found] = damaged(put(Table.CHUNKS, KEY_A + (3).to_bytes(4, "big"), b"x"))
    assert found.packet_key == A.packet_key
    assert "4 chunks instead of 3" in found.reason


def test_chunks_of_nothing_are_found(damaged):
    key = packet_row_key(1, make_record("gone").packet_key)
    found = damaged(put(Table.CHUNKS, key + bytes(4), b"x"))
    assert [damage.packet_key for damage in found] == [None, make_record("gone").packet_key]


@pytest.mark.parametrize("at", [0, 35, -1])
def test_a_spoilt_manifest_is_found(damaged, at):
    found, counters = damaged(flip(Table.MANIFESTS, KEY_A, at))
    assert (found.packet_key, found.document_ids) == (A.packet_key, ("d",))
    assert counters.reason.startswith("the counters say")


def test_a_manifest_under_another_key_is_found(damaged):
    other = packet_row_key(1, B.packet_key)
    found = damaged(
        lambda txn, tables: txn.put(
            KEY_A, txn.get(other, db=tables[Table.MANIFESTS]), db=tables[Table.MANIFESTS]
        )
    )
    assert found[0].packet_key == A.packet_key
    assert B.packet_key in found[0].reason


def test_a_spoilt_chunk_is_found_where_bytes_are_read(damaged):
    [found] = damaged(flip(Table.CHUNKS, KEY_A + bytes(4), 1000), deep=True)
    assert (found.packet_key, found.document_ids) == (A.packet_key, ("d",))
    assert "checksum" in found.reason


def test_a_spoilt_shared_packet_is_found(damaged):
    header = make_record("header").packet_key
    [found] = damaged(flip(Table.CHUNKS, packet_row_key(0, header) + bytes(4)), deep=True)
    assert (found.packet_key, found.document_ids, found.namespace) == (header, (), None)


def test_a_spoilt_document_is_found(damaged):
    [found] = damaged(flip(Table.DOCUMENTS, DOCUMENT))
    assert (found.packet_key, found.document_ids) == (None, ("d",))


def test_a_missing_text_is_found(damaged):
    [found] = damaged(delete(Table.TEXTS, DOCUMENT))
    assert (found.document_ids, found.reason) == (("d",), "its text is missing")


def test_a_spoilt_text_is_found_where_bytes_are_read(damaged):
    [found] = damaged(flip(Table.TEXTS, DOCUMENT), deep=True)
    assert found.document_ids == ("d",)


@pytest.mark.parametrize("at", [0, 9, -1])
def test_a_spoilt_embedding_is_found(damaged, at):
    [found] = damaged(flip(Table.EMBEDDINGS, embedding_key(DOCUMENT, 1), at))
    assert found.document_ids == ("d",)
    assert "embedding of segment 1" in found.reason


def test_a_missing_embedding_is_found(damaged):
    [found] = damaged(delete(Table.EMBEDDINGS, embedding_key(DOCUMENT, 1)))
    assert found.reason == "1 embeddings for 2 segments"


def test_a_missing_reference_is_found(damaged):
    [found] = damaged(delete(Table.REFERENCES, KEY_A, b"d"))
    assert (found.packet_key, found.document_ids) == (A.packet_key, ("d",))


def test_a_reference_from_nowhere_is_found(damaged):
    [found] = damaged(put(Table.REFERENCES, KEY_A, b"ghost"))
    assert (found.packet_key, found.document_ids) == (A.packet_key, ("ghost",))


@pytest.mark.parametrize(
    "table", [Table.DOCUMENTS, Table.TEXTS, Table.EMBEDDINGS, Table.MANIFESTS, Table.CHUNKS]
)
def test_rows_of_no_namespace_are_found(damaged, table):
    count, found = damaged(put(table, b"\x00\x00\x00\x09" + bytes(36), b"x"))
    assert count.reason == "the number of the last namespace is missing or too small"
    assert found.reason == "rows of a namespace whose own row is lost (number 9)"
    assert len(found.document_ids) == (table is Table.DOCUMENTS)


@pytest.mark.parametrize("table", [Table.TEXTS, Table.PINS, Table.USAGE])
@pytest.mark.parametrize("key", [b"x", bytes(40)])
def test_rows_of_nothing_are_found(damaged, table, key):
    [found] = damaged(put(table, key, b"x"))
    assert found.reason == f"1 rows of table {table} belong to nothing"


@pytest.mark.parametrize("value", [None, b"\x00\x00\x00\x00", b"x"])
def test_a_lost_number_of_namespaces_is_found(damaged, value):
    def lose(txn, tables):
        txn.delete(b"last_namespace", db=tables[Table.META])
        if value is not None:
            txn.put(b"last_namespace", value, db=tables[Table.META])

    [found] = damaged(lose)
    assert found.reason == "the number of the last namespace is missing or too small"


def test_a_lost_manifest_of_a_document_is_found(damaged):
    found = damaged(delete(Table.DOCUMENTS, DOCUMENT))
    assert (found[0].namespace, found[0].document_ids) == ("n", ("d",))
    assert found[0].reason == "its manifest is missing"
    assert [damage.reason[:12] for damage in found[1:]] == ["the counters"]


def test_a_reference_from_a_document_that_does_not_name_the_packet_is_found(damaged):
    [found] = damaged(put(Table.REFERENCES, KEY_A, b"e"))
    assert (found.packet_key, found.document_ids) == (A.packet_key, ("e",))
    assert found.reason == "a document refers to the packet that does not name it"


def test_wrong_counters_are_found(damaged):
    def lie(txn, tables):
        key = document_key(1, "e")
        for table in (Table.DOCUMENTS, Table.TEXTS):
            txn.delete(key, db=tables[table])
        txn.delete(embedding_key(key, 0), db=tables[Table.EMBEDDINGS])
        txn.delete(packet_row_key(1, B.packet_key), b"e", db=tables[Table.REFERENCES])

    [found] = damaged(lie)
    assert found.reason.startswith("the counters say documents 2")


def test_a_spoilt_namespace_is_found(damaged):
    [found] = damaged(flip(Table.NAMESPACES, b"n"))
    assert "namespace" in found.reason


def test_pages_that_do_not_hold_are_found_before_lmdb_meets_them(store):
    store.put_documents("n", [make_write("d", [A, B])])
    store.close()
    data = store.path / "data.mdb"
    content = bytearray(data.read_bytes())
    for page in range(2, len(content) // 4096):
        if content[4096 * page + 10] == 2:  # a leaf: let its number be another page's
            content[4096 * page] ^= 0x55
    data.write_bytes(content)
    with PacketStore.open(store.path) as opened:
        found = opened.check()
    assert found
    assert all(damage.reason.startswith("data.mdb: ") for damage in found)
