"""Promise: answers follow the source, whatever is on disk and whoever else is searching."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.retrieve import Retriever


def found(hits) -> list[str]:
    return [hit.document_id for hit in hits]


def test_the_nearest_document_comes_first(source, embedder, ingest):
    ingest("ns", a="river", b="bank", c="money")
    assert found(Retriever(source, embedder).retrieve("bank", "ns", 3))[0] == "b"


def test_a_filter_reaches_the_index(source, embedder, ingest):
    ingest("ns", a="river", b="bank", c="money")
    hits = Retriever(source, embedder).retrieve("bank", "ns", 3, keep=lambda it: it != "b")
    assert sorted(found(hits)) == ["a", "c"]


def test_top_k_is_checked(source, embedder):
    with pytest.raises(UsageError):
        Retriever(source, embedder).retrieve("bank", "ns", 0)


def test_an_unknown_namespace_has_nothing(source, embedder, ingest):
    ingest("ns", a="river")
    assert Retriever(source, embedder).retrieve("river", "other", 3) == []


def test_a_thousand_equal_documents_in_two_namespaces_do_not_mix(source, embedder, tmp_path):
    vector = embedder.embed(["the same text"])[0]
    for place in range(1000):
        source.put("north", f"north-{place}", 0, vector)
        source.put("south", f"south-{place}", 0, vector)
    retriever = Retriever(source, embedder, tmp_path)
    for namespace in ("north", "south", "north"):
        hits = retriever.retrieve("the same text", namespace, 1500)
        assert len(hits) == 1000
        assert all(name.startswith(namespace) for name in found(hits))


def test_changes_are_seen_and_sameness_costs_nothing(source, embedder, ingest):
    retriever = Retriever(source, embedder)
    ingest("ns", a="river", b="bank")
    assert sorted(found(retriever.retrieve("bank", "ns", 9))) == ["a", "b"]
    ingest("ns", c="money")
    assert sorted(found(retriever.retrieve("bank", "ns", 9))) == ["a", "b", "c"]
    source.delete("ns", "b")
    assert sorted(found(retriever.retrieve("bank", "ns", 9))) == ["a", "c"]
    assert source.reads == 3
    ingest("other", d="duck")
    assert sorted(found(retriever.retrieve("bank", "ns", 9))) == ["a", "c"]
    assert source.reads == 3


def test_a_fresh_process_reads_the_snapshot_instead(source, embedder, ingest, tmp_path):
    ingest("ns", a="river", b="bank")
    first = Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9)
    assert source.reads == 1
    (file,) = tmp_path.iterdir()
    written = file.stat().st_ino
    assert Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9) == first
    assert source.reads == 1
    assert file.stat().st_ino == written


def test_a_stale_snapshot_is_rebuilt(source, embedder, ingest, tmp_path):
    ingest("ns", a="river", b="bank")
    Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9)
    source.delete("ns", "b")
    assert found(Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9)) == ["a"]
    assert source.reads == 2


def test_a_snapshot_of_another_embedder_is_rebuilt(source, make_embedder, ingest, tmp_path):
    ingest("ns", a="river")
    Retriever(source, make_embedder(), tmp_path).retrieve("bank", "ns", 9)
    other = make_embedder(digest="f" * 64)
    assert found(Retriever(source, other, tmp_path).retrieve("bank", "ns", 9)) == ["a"]
    assert source.reads == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "remove"])
def test_a_damaged_snapshot_is_rebuilt_and_written_anew(source, embedder, ingest, tmp_path, damage):
    ingest("ns", a="river", b="bank")
    expected = Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9)
    (file,) = tmp_path.iterdir()
    intact = file.read_bytes()
    flipped = intact[:-3] + bytes([intact[-3] ^ 4]) + intact[-2:]
    {
        "flip": lambda: file.write_bytes(flipped),
        "cut": lambda: file.write_bytes(intact[: len(intact) // 2]),
        "empty": lambda: file.write_bytes(b""),
        "remove": file.unlink,
    }[damage]()
    assert Retriever(source, embedder, tmp_path).retrieve("bank", "ns", 9) == expected
    assert source.reads == 2
    assert file.read_bytes() == intact


def test_a_folder_that_cannot_be_written_costs_no_answer(source, embedder, ingest, tmp_path):
    ingest("ns", a="river")
    (tmp_path / "file").write_bytes(b"")
    retriever = Retriever(source, embedder, tmp_path / "file" / "snapshots")
    assert found(retriever.retrieve("river", "ns", 1)) == ["a"]


def test_an_index_that_was_overtaken_is_not_saved(source, embedder, ingest, tmp_path):
    ingest("ns", a="river")
    plain = source.iter_embeddings

    def overtaken(namespace):
        rows = list(plain(namespace))
        ingest("ns", b="bank")
        return iter(rows)

    source.iter_embeddings = overtaken
    retriever = Retriever(source, embedder, tmp_path)
    assert found(retriever.retrieve("bank", "ns", 9)) == ["a"]
    assert list(tmp_path.iterdir()) == []
    source.iter_embeddings = plain
    assert found(retriever.retrieve("bank", "ns", 9)) == ["b", "a"]
    assert len(list(tmp_path.iterdir())) == 1


class Gate:
    """Holds the source's next read until it is opened."""

    def __init__(self, source) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._plain = source.iter_embeddings
        source.iter_embeddings = self

    def __call__(self, namespace):
        rows = list(self._plain(namespace))
        self.reached.set()
        assert self.opened.wait(30)
        return iter(rows)


def test_searches_go_on_with_the_old_index_while_a_new_one_is_built(source, embedder, ingest):
    retriever = Retriever(source, embedder)
    ingest("ns", a="river")
    retriever.retrieve("river", "ns", 9)
    ingest("ns", b="bank")
    gate = Gate(source)
    with ThreadPoolExecutor(1) as pool:
        rebuilding = pool.submit(retriever.retrieve, "river", "ns", 9)
        assert gate.reached.wait(30)
        assert found(retriever.retrieve("river", "ns", 9)) == ["a"]
        gate.opened.set()
        assert found(rebuilding.result()) == ["a", "b"]
    assert found(retriever.retrieve("river", "ns", 9)) == ["a", "b"]


def test_searches_can_be_told_to_wait(source, embedder, ingest):
    retriever = Retriever(source, embedder, wait_for_rebuild=True)
    ingest("ns", a="river")
    retriever.retrieve("river", "ns", 9)
    ingest("ns", b="bank")
    gate = Gate(source)
    with ThreadPoolExecutor(2) as pool:
        searches = [pool.submit(retriever.retrieve, "river", "ns", 9) for _ in range(2)]
        assert gate.reached.wait(30)
        gate.opened.set()
        assert [found(search.result()) for search in searches] == [["a", "b"]] * 2
    assert source.reads == 2


def test_a_namespace_does_not_wait_for_anothers_rebuild(source, embedder, ingest):
    retriever = Retriever(source, embedder, wait_for_rebuild=True)
    ingest("north", a="river")
    ingest("south", b="river")
    retriever.retrieve("river", "south", 9)
    gate = Gate(source)
    with ThreadPoolExecutor(1) as pool:
        rebuilding = pool.submit(retriever.retrieve, "river", "north", 9)
        assert gate.reached.wait(30)
        assert found(retriever.retrieve("river", "south", 9)) == ["b"]
        gate.opened.set()
        assert found(rebuilding.result()) == ["a"]


def test_many_first_searches_build_once(source, embedder, ingest):
    ingest("ns", a="river")
    gate = Gate(source)
    retriever = Retriever(source, embedder)
    with ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(retriever.retrieve, "river", "ns", 9) for _ in range(8)]
        assert gate.reached.wait(30)
        gate.opened.set()
        assert {tuple(found(search.result())) for search in searches} == {("a",)}
    assert source.reads == 1


def test_a_failed_rebuild_is_tried_again(source, embedder, ingest):
    ingest("ns", a="river")
    plain, source.iter_embeddings = source.iter_embeddings, None
    retriever = Retriever(source, embedder)
    with pytest.raises(TypeError):
        retriever.retrieve("river", "ns", 1)
    source.iter_embeddings = plain
    assert found(retriever.retrieve("river", "ns", 1)) == ["a"]


@pytest.mark.parametrize("wait_for_rebuild", [False, True])
def test_searches_among_changes_see_whole_states_only(
    source, embedder, ingest, tmp_path, wait_for_rebuild
):
    """The writer adds and removes pairs; a torn index would show one of a pair with a wrong key."""
    vectors = embedder.embed(["left", "right"])
    rows = {}
    source.namespaces["ns"], source.generations["ns"] = rows, 1
    retriever = Retriever(source, embedder, tmp_path, wait_for_rebuild=wait_for_rebuild)
    done = threading.Event()

    def write() -> None:
        for turn in range(150):
            pair = {
                (f"{side}-{turn}", 0): (f"key-{turn}", vector.tobytes())
                for side, vector in zip(("left", "right"), vectors, strict=True)
            }
            source._commit("ns", pair)
        done.set()

    def search() -> int:
        searches = 0
        while not done.is_set() or searches == 0:
            hits = retriever.retrieve("left", "ns", 5)
            searches += 1
            turns = {hit.document_id.partition("-")[2] for hit in hits}
            assert len(hits) in (0, 2)
            assert len(turns) <= 1
            assert {hit.packet_key for hit in hits} == {f"key-{turn}" for turn in turns}
        return searches

    with ThreadPoolExecutor(4) as pool:
        searchers = [pool.submit(search) for _ in range(3)]
        pool.submit(write).result()
        assert all(searcher.result() >= 1 for searcher in searchers)
    assert sorted(found(retriever.retrieve("left", "ns", 5))) == ["left-149", "right-149"]
