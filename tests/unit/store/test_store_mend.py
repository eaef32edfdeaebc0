"""Rows that were lost behind the store's back: what stays, what comes back, and what is named."""

import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import META_LAST_NAMESPACE, Table, document_key, packet_row_key
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

A, B, C = (make_record(name, 150_000) for name in "abc")


def put(store, document_id, *records, namespace="n", version=0):
    store.put_documents(namespace, [make_write(document_id, records, version=version)])


def has(store, *records, namespace="n"):
    return [store.has_packet(namespace, record.packet_key) for record in records]


def lose(*rows):
    def action(txn, tables):
        for table, key in rows:
            assert txn.delete(key, db=tables[table])

    return action


def reasons(store):
    return [damage.reason for damage in store.check(deep=True)]


# --- the count of namespaces


@pytest.mark.parametrize("value", [None, b"\x00\x00\x00\x01", b"junk!"])
def test_a_lost_count_never_lets_two_namespaces_share(store, behind_its_back, value):
    for name, record in (("x", A), ("y", B), ("empty", C)):
        put(store, "d", record, namespace=name)
    store.delete_document("empty", "d")
    store.close()

    def spoil(txn, tables):
        txn.delete(META_LAST_NAMESPACE, db=tables[Table.META])
        if value is not None:
            txn.put(META_LAST_NAMESPACE, value, db=tables[Table.META])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        assert opened.check() != []
        put(opened, "new", make_record("new"), namespace="z")
        assert opened.count("z") == opened.count("x") == opened.count("y") == 1
        assert opened.count("empty") == 0
        assert not opened.has_packet("z", A.packet_key)
        with opened._environment.read() as tx:
            assert tx.get(Table.META, META_LAST_NAMESPACE) == b"\x00\x00\x00\x04"
        assert opened.check(deep=True) == []


def test_mending_restores_the_count_of_namespaces(store, behind_its_back):
    put(store, "d", A)
    store.close()
    behind_its_back(store.path, lose((Table.META, META_LAST_NAMESPACE)))
    with PacketStore.open(store.path) as opened:
        opened.mend()
        assert opened.check(deep=True) == []


def test_a_namespace_finds_a_number_beside_the_largest(store, behind_its_back):
    put(store, "d", A)
    store.close()
    key = b"\xff\xff\xff\xffjunk"
    behind_its_back(store.path, lambda txn, tables: txn.put(key, b"x", db=tables[Table.TEXTS]))
    with PacketStore.open(store.path) as opened:
        put(opened, "d", B, namespace="m")
        put(opened, "d", C, namespace="o")
        with opened._environment.read() as tx:
            for number, record in ((2, B), (3, C)):
                assert tx.size(Table.MANIFESTS, packet_row_key(number, record.packet_key))


# --- namespaces


def test_rows_of_a_lost_namespace_stay_and_come_back(store, behind_its_back):
    put(store, "d", A, B)
    put(store, "e", B)
    store.pin_document("n", "d")
    put(store, "taken", C, namespace="recovered-1")
    generation = store.generation("n")
    store.close()
    behind_its_back(store.path, lose((Table.NAMESPACES, b"n")))
    with PacketStore.open(store.path) as opened:
        [damage] = opened.check(deep=True)
        assert damage.reason == "rows of a namespace whose own row is lost (number 1)"
        assert damage.document_ids == ("d", "e")
        report = opened.gc(grace_s=0)
        assert (report.deleted_packets, report.deleted_rows) == (0, 0)
        put(opened, "d", C)  # another namespace now, though it has the name
        assert has(opened, A, B, C) == [False, False, True]
        opened.mend()
        name = "recovered-1-2"
        assert opened.namespaces() == ["n", "recovered-1", name]
        assert has(opened, A, B, namespace=name) == [True, True]
        assert opened.get_document(name, "d").is_pinned
        assert len(list(opened.iter_embeddings(name))) == 3
        assert opened.generation(name) not in {0, generation}
        assert opened.stats(name).packets == 2
        assert opened.check(deep=True) == []
        opened.delete_document(name, "e")
        opened.delete_document(name, "d")
        assert opened.check(deep=True) == []


def test_a_lost_namespace_does_not_keep_others_from_being_evicted(tmp_path, behind_its_back):
    with PacketStore.create(tmp_path / "c.kvps", make_meta(max_bytes=6 << 20)) as capped:
        for i in range(6):
            put(capped, f"{i}", make_record(f"old {i}", 150_000), namespace="lost")
    behind_its_back(tmp_path / "c.kvps", lose((Table.NAMESPACES, b"lost")))
    with PacketStore.open(tmp_path / "c.kvps") as capped:
        for i in range(60):
            put(capped, f"{i}", make_record(f"new {i}", 150_000))
        assert capped.stats().evicted_packets
        [damage] = capped.check(deep=True)
        assert "number 1" in damage.reason


# --- manifests of documents


@pytest.fixture
def without_manifest(store, behind_its_back):
    """A store whose document "d" (A, B) has lost its manifest; "e" has B too."""
    put(store, "d", A, B)
    put(store, "e", B)
    store.pin_document("n", "d")
    store.close()
    behind_its_back(store.path, lose((Table.DOCUMENTS, document_key(1, "d"))))
    with PacketStore.open(store.path) as opened:
        yield opened


def test_what_belongs_to_a_lost_manifest_stays(without_manifest):
    store = without_manifest
    for _ in range(2):
        store.mend()
        report = store.gc(grace_s=0)
        assert (report.deleted_packets, report.deleted_rows) == (0, 0)
    [damage] = store.check(deep=True)
    assert (damage.document_ids, damage.reason) == (("d",), "its manifest is missing")
    assert has(store, A, B) == [True, True]
    assert store.document_text("n", "d").startswith("d 0")


def test_a_document_that_lost_its_manifest_can_be_put_again(without_manifest):
    put(without_manifest, "d", C, version=1)
    assert without_manifest.check(deep=True) == []
    assert has(without_manifest, A, B, C) == [False, True, True]
    assert without_manifest.get_manifest("n", B.packet_key).refcount == 1
    rows = [row[:2] for row in without_manifest.iter_embeddings("n")]
    assert rows == [("d", 0), ("e", 0)]


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_document_that_lost_its_manifest_can_be_deleted(without_manifest, is_mended):
    if is_mended:
        without_manifest.mend()
    without_manifest.delete_document("n", "d")
    assert without_manifest.check(deep=True) == []
    assert has(without_manifest, A, B) == [False, True]
    assert without_manifest.count("n") == 1
    with without_manifest._environment.read() as tx:
        assert tx.count_rows(Table.PINS) == 0
        assert tx.count_rows(Table.EMBEDDINGS) == 1


# --- references


@pytest.mark.parametrize("remedy", ["mend", "gc"])
def test_references_follow_what_documents_name(store, behind_its_back, remedy):
    put(store, "d", A)
    put(store, "e", B)
    store.close()
    key_a, key_b = (packet_row_key(1, record.packet_key) for record in (A, B))

    def spoil(txn, tables):
        assert txn.delete(key_a, b"d", db=tables[Table.REFERENCES])
        txn.put(key_a, b"e", db=tables[Table.REFERENCES])
        txn.put(key_b, b"ghost", db=tables[Table.REFERENCES])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        assert sorted(reasons(opened)) == [
            "a document refers to the packet that does not name it",
            "a document that is not there refers to the packet",
            "the packet does not know that this document refers to it",
        ]
        opened.mend() if remedy == "mend" else opened.gc(grace_s=0)
        assert opened.check(deep=True) == []
        assert has(opened, A, B) == [True, True]
        opened.delete_document("n", "e")
        assert has(opened, A, B) == [True, False]
        assert opened.check(deep=True) == []


def test_a_packet_held_by_a_wrong_reference_alone_goes(store, behind_its_back):
    put(store, "d", A)
    store.stage_packets("n", {C.packet_key: C})
    store.close()
    key = packet_row_key(1, C.packet_key)
    behind_its_back(store.path, lambda txn, t: txn.put(key, b"d", db=t[Table.REFERENCES]))
    with PacketStore.open(store.path) as opened:
        assert opened.gc(grace_s=0).deleted_packets == 1
        assert has(opened, A, C) == [True, False]
        assert opened.check(deep=True) == []
