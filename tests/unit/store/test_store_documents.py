import dataclasses
import random
import shutil

import pytest

from kvpacket_store.errors import CorruptRecordError, DocumentError, NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table, document_key, packet_row_key
from kvpacket_store.store.synthetic import make_record, make_write

A, B, C = (make_record(name, 150_000) for name in "abc")


def put(store, document_id, *records, namespace="n", version=0):
    store.put_documents(namespace, [make_write(document_id, records, version=version)])


def has(store, *records):
    return [store.has_packet("n", record.packet_key) for record in records]


def test_a_document_comes_back(store):
    write = make_write("d", [A, B])
    store.put_document("n", write.manifest, write.records, write.embeddings)
    found = store.get_document("n", "d")
    assert found == dataclasses.replace(write.manifest, text=None, namespace="n")
    assert found.tokens == 16
    assert store.document_text("n", "d") == write.manifest.text
    assert store.has_document("n", "d")
    assert store.count() == store.count("n") == 1


def test_what_is_not_there_is_not_found(store):
    put(store, "d", A)
    for namespace, document_id in (("n", "e"), ("m", "d")):
        assert not store.has_document(namespace, document_id)
        for call in (store.get_document, store.document_text, store.delete_document):
            with pytest.raises(NotFoundError, match=document_id):
                call(namespace, document_id)
        with pytest.raises(NotFoundError, match=document_id):
            store.update_metadata(namespace, document_id, {}, "h")
        with pytest.raises(NotFoundError, match=document_id):
            store.read_document(namespace, document_id)
    assert store.count("m") == 0


def test_an_upsert_deletes_what_only_the_old_version_had(store):
    put(store, "d", A, B)
    put(store, "e", B)
    put(store, "d", C)
    assert has(store, A, B, C) == [False, True, True]
    assert store.check(deep=True) == []


def test_deleting_a_document_keeps_what_others_share(store):
    put(store, "d", A, B, A)
    put(store, "e", B)
    store.delete_document("n", "d")
    assert has(store, A, B) == [False, True]
    assert not store.has_document("n", "d")
    store.delete_document("n", "e")
    assert set((store.stats("n").to_dict() | {"file_bytes": 0}).values()) == {0}
    assert store.check(deep=True) == []


def test_a_batch_shares_its_records_and_the_last_of_equal_ids_stays(store):
    first, second, third = make_write("d", [A]), make_write("e", [A, B]), make_write("d", [C])
    bare = dataclasses.replace(second, records={B.packet_key: B})
    store.put_documents("n", [bare, first, third])
    assert store.get_document("n", "d").packet_keys == (C.packet_key,)
    assert has(store, A, B, C) == [True, True, True]
    assert store.count("n") == 2
    assert store.check(deep=True) == []


def test_a_batch_is_written_wholly_or_not_at_all(store):
    put(store, "d", A)
    generation = store.generation("n")
    bad = dataclasses.replace(make_write("f", [C]), records={})
    with pytest.raises(DocumentError, match="neither in the store nor passed"):
        store.put_documents("n", [make_write("e", [B]), bad])
    assert [d.id for d in store.list_documents("n")[0]] == ["d"]
    assert has(store, A, B) == [True, False]
    assert store.generation("n") == generation
    assert store.check(deep=True) == []


def test_an_empty_batch_changes_nothing(store):
    store.put_documents("n", [])
    assert store.generation("n") == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": ""}, "an id is"),
        ({"id": "x" * 1001}, "an id is"),
        ({"text": None}, "its text is missing"),
        ({"metadata": {"a": float("nan")}}, "not JSON"),
        ({"metadata": {"a": object()}}, "not JSON"),
        ({"metadata": {"a": {1, 2}}}, "not JSON"),
    ],
)
def test_what_cannot_be_filed_is_refused_by_name(store, changes, reason):
    write = make_write("d", [A])
    manifest = dataclasses.replace(write.manifest, **changes)
    with pytest.raises(DocumentError, match=reason) as caught:
        store.put_document("n", manifest, write.records)
    assert caught.value.exit_code == 1
    assert store.count() == 0


def test_metadata_nested_without_end_is_refused(store):
    endless: dict = {}
    endless["self"] = endless
    write = make_write("d", [A])
    with pytest.raises(DocumentError, match="not JSON"):
        store.put_document(
            "n", dataclasses.replace(write.manifest, metadata=endless), write.records
        )


@pytest.mark.parametrize("namespace", ["", "x" * 201, None, 5])
def test_what_is_no_namespace_is_refused(store, namespace):
    with pytest.raises(UsageError, match="namespace"):
        put(store, "d", A, namespace=namespace)


@pytest.mark.parametrize(
    "embeddings", [[], [b"1234"], [b"1234", b"12345678"], [b"123", b"123"], [b"", b""]]
)
def test_embeddings_that_do_not_fit_are_refused(store, embeddings):
    write = make_write("d", [A, B])
    with pytest.raises(DocumentError, match="embeddings"):
        store.put_document("n", write.manifest, write.records, embeddings)


def test_a_record_under_another_key_is_refused(store):
    write = make_write("d", [A])
    with pytest.raises(DocumentError, match="is passed under key"):
        store.put_document("n", write.manifest, {A.packet_key: A, B.packet_key: A})


def test_embeddings_follow_their_document(store):
    put(store, "d", A, B)
    put(store, "e", C)
    rows = list(store.iter_embeddings("n"))
    assert [row[:3] for row in rows] == [
        ("d", 0, A.packet_key),
        ("d", 1, B.packet_key),
        ("e", 0, C.packet_key),
    ]
    assert rows[0][3] == bytes.fromhex(A.packet_key)[:4] * 4
    put(store, "d", B)
    assert next(row[:3] for row in store.iter_embeddings("n")) == ("d", 0, B.packet_key)
    write = make_write("e", [C])
    store.put_document("n", write.manifest, write.records, None)
    assert [row[0] for row in store.iter_embeddings("n")] == ["d"]
    store.delete_document("n", "d")
    assert list(store.iter_embeddings("n")) == list(store.iter_embeddings("m")) == []


def test_generations_grow_and_tell_changes_of_documents_from_others(store):
    seen = [store.generation("n")]

    def must_grow():
        seen.append(store.generation("n"))
        assert seen[-1] > seen[-2]

    put(store, "d", A)
    must_grow()
    put(store, "d", A, B)
    must_grow()
    store.update_metadata("n", "d", {"x": 1}, "h")
    must_grow()
    store.delete_document("n", "d")
    must_grow()
    put(store, "d", A, namespace="m")
    store.put_shared(C)
    store.stage_packets("n", {C.packet_key: C})
    put(store, "d", A)
    must_grow()
    store.replace_record("n", dataclasses.replace(A, record=b"mended"))
    assert store.generation("n") == seen[-1]


def test_two_futures_of_one_past_do_not_share_generations(store, tmp_path):
    """An index of a store that was lost must not be believed by the copy that was restored."""
    put(store, "d", A)
    store.close()
    shutil.copytree(store.path, tmp_path / "copy.kvps")
    generations = []
    for path in (store.path, tmp_path / "copy.kvps"):
        with type(store).open(path) as future:
            put(future, "e", B)
            generations.append(future.generation("n"))
    assert generations[0] != generations[1]


def test_metadata_changes_alone(store):
    put(store, "d", A, B)
    before = store.get_document("n", "d")
    store.update_metadata("n", "d", {"title": "é \ud800"}, "new")
    after = store.get_document("n", "d")
    expected = {"metadata": {"title": "é \ud800"}, "metadata_hash": "new"}
    assert after == dataclasses.replace(before, **expected)
    assert store.document_text("n", "d") == make_write("d", [A, B]).manifest.text
    assert len(list(store.iter_embeddings("n"))) == 2
    with pytest.raises(DocumentError, match="not JSON"):
        store.update_metadata("n", "d", {"a": float("inf")}, "h")
    assert store.get_document("n", "d") == after
    assert store.check(deep=True) == []


@pytest.mark.parametrize("text", ["", "é" * 10, "\ud800 alone", "NUL \x00", "long " * 50_000])
def test_texts_come_back_as_they_were(store, text):
    write = make_write("d", [A])
    manifest = dataclasses.replace(write.manifest, text=text)
    store.put_document("n", manifest, write.records)
    assert store.document_text("n", "d") == text


ODD_IDS = [
    "a",
    "a\x00",
    "a\x00\x00\x00\x00",
    "a/b",
    "../../etc/passwd",
    "é",
    "😀",
    "\ud800",
    "\uffff",
    " ",
    "a" * 300,
    "a" * 300 + "b",
    "b" * 439 + "é",  # cut between the bytes of one character
    "x" * 440,
    "x" * 441,
    "x" * 1000,
    "x" * 999 + "y",
    "😀" * 1000,
]


def test_every_id_is_its_own_document(store):
    store.put_documents("n", [make_write(name, [A]) for name in ODD_IDS])
    listed = [document.id for document in store.list_documents("n", 100)[0]]
    assert sorted(listed) == sorted(ODD_IDS)
    short = [name for name in ODD_IDS if len(name.encode("utf-8", "surrogatepass")) <= 301]
    assert [name for name in listed if name in short] == sorted(short)
    assert {row[0] for row in store.iter_embeddings("n")} == set(ODD_IDS)
    for name in ODD_IDS:
        assert store.get_document("n", name).id == name
        assert store.document_text("n", name).startswith(name)
    assert store.check(deep=True) == []
    for name in ODD_IDS:
        store.delete_document("n", name)
    assert store.count() == 0
    assert store.check(deep=True) == []


def test_every_name_is_its_own_namespace(store):
    names = ["n", "N", " ", "é", "\xff", "shared", "😀" * 200, "😀" * 199 + "x"]
    for name in names:
        put(store, name[:5], A, namespace=name)
    assert sorted(store.namespaces()) == sorted(names)
    for name in names:
        assert [d.id for d in store.list_documents(name)[0]] == [name[:5]]
    assert store.check(deep=True) == []


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_pages_tile_the_list(store, limit):
    ids = [f"doc {i:03}" for i in random.Random(1).sample(range(1000), 21)]
    store.put_documents("n", [make_write(name, [A]) for name in ids])
    found, after = [], None
    while True:
        page, after = store.list_documents("n", limit, after)
        found += [document.id for document in page]
        assert len(page) == limit or after is None
        if after is None:
            break
        assert after == page[-1].id
    assert found == sorted(ids)


def test_a_page_begins_after_any_text(store):
    store.put_documents("n", [make_write(name, [A]) for name in ("a", "b", "d")])
    assert [d.id for d in store.list_documents("n", after="b")[0]] == ["d"]
    assert [d.id for d in store.list_documents("n", after="c")[0]] == ["d"]
    assert store.list_documents("n", after="d") == ([], None)
    assert store.list_documents("unknown") == ([], None)
    with pytest.raises(UsageError, match="limit"):
        store.list_documents("n", 0)


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_pages_go_on_from_namespace_to_namespace(store, limit):
    for namespace in ("b", "a", "c"):
        store.put_documents(namespace, [make_write(name, [A]) for name in "zx"])
    put(store, "gone", A, namespace="aa")
    store.delete_document("aa", "gone")
    found, after = [], None
    while True:
        page, after = store.list_documents(None, limit, after)
        found += [(document.namespace, document.id) for document in page]
        if after is None:
            break
    assert found == [(namespace, name) for namespace in "abc" for name in "xz"]
    with pytest.raises(UsageError, match="goes on"):
        store.list_documents(None, after="not a cursor")


def test_a_document_and_its_records_are_read_as_of_one_moment(store):
    put(store, "d", A, B, A)
    manifest, records = store.read_document("n", "d")
    assert manifest.id == "d"
    assert records == {A.packet_key: A.record, B.packet_key: B.record}


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
