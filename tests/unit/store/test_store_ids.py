"""Ids and names of any kind, and the pages in which they are listed."""

import random

import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.store.synthetic import make_record, make_write

A = make_record("a", 150_000)

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
        store.put_documents(name, [make_write(name[:5], [A])])
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
    store.put_documents("aa", [make_write("gone", [A])])
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
