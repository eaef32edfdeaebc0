import dataclasses
import shutil

import pytest

from kvpacket_store.errors import DocumentError, NotFoundError, UsageError
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


def test_a_document_and_its_records_are_read_as_of_one_moment(store):
    put(store, "d", A, B, A)
    manifest, packets = store.read_document("n", "d")
    assert manifest.id == "d"
    records = {key: packet.record for key, packet in packets.items()}
    assert records == {A.packet_key: A.record, B.packet_key: B.record}
