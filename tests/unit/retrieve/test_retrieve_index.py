"""Promise: the best segments of one namespace, filtered before ranking, in one order."""

from __future__ import annotations

import numpy as np
import pytest

from kvpacket_store.errors import ModelMismatchError, StoreCorruptError, UsageError
from kvpacket_store.retrieve import PacketIndex


def unit(values) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def names(hits) -> list[tuple[str, int]]:
    return [(hit.document_id, hit.segment_index) for hit in hits]


@pytest.fixture
def random_vectors():
    rng = np.random.default_rng(11)
    return [unit(row) for row in rng.standard_normal((300, 16))]


@pytest.fixture
def filled(source, random_vectors):
    for place, vector in enumerate(random_vectors):
        source.put("ns", f"doc{place // 3:03d}", place % 3, vector)
    return PacketIndex.build(source, "ns", 16)


def test_a_segment_finds_itself_first(source, filled, random_vectors):
    for place in (0, 137, 299):
        best = filled.search(random_vectors[place], 1)[0]
        assert (best.document_id, best.segment_index) == (f"doc{place // 3:03d}", place % 3)
        assert best.packet_key == source.namespaces["ns"][names([best])[0]][0]
        assert best.score == pytest.approx(1.0, abs=1e-6)


def test_scores_fall(filled, random_vectors):
    scores = [hit.score for hit in filled.search(random_vectors[5], 300)]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 300


@pytest.mark.parametrize("top_k", [1, 99, 100, 250, 299, 300, 301, 10**12])
def test_as_many_hits_as_there_are(filled, random_vectors, top_k):
    hits = filled.search(random_vectors[0], top_k)
    assert len(set(names(hits))) == len(hits) == min(top_k, 300)


def test_a_shorter_answer_is_the_start_of_a_longer_one(filled, random_vectors):
    everything = filled.search(random_vectors[8], 300)
    for top_k in (1, 2, 17, 100, 299):
        assert filled.search(random_vectors[8], top_k) == everything[:top_k]


def test_an_empty_index_answers_nothing(source):
    index = PacketIndex.build(source, "nobody", 16)
    assert len(index) == 0
    assert index.search(unit(np.ones(16)), 5) == []
    assert index.search(unit(np.ones(16)), 5, keep=lambda document_id: True) == []


def test_the_filter_comes_before_the_cut(filled, random_vectors):
    best = {hit.document_id for hit in filled.search(random_vectors[0], 200)}
    hits = filled.search(random_vectors[0], 5, keep=lambda document_id: document_id not in best)
    assert len(hits) == 5
    assert not best & {hit.document_id for hit in hits}


def test_a_filter_that_accepts_nothing_gives_nothing(filled, random_vectors):
    assert filled.search(random_vectors[0], 5, keep=lambda document_id: False) == []


def test_the_filter_is_asked_once_a_document(filled, random_vectors):
    asked = []
    filled.search(random_vectors[0], 5, keep=lambda document_id: asked.append(document_id) or True)
    assert sorted(asked) == [f"doc{place:03d}" for place in range(100)]


@pytest.mark.parametrize("top_k", [1, 5, 150])
@pytest.mark.parametrize("dimension", [3, 16, 384])
def test_ties_are_broken_by_name_whatever_the_order_of_arrival(source, top_k, dimension):
    rng = np.random.default_rng(dimension)
    vector = unit(rng.standard_normal(dimension))
    arrival = rng.permutation(331)
    for place in arrival:
        source.put("ns", f"doc{place // 3:03d}", int(place % 3), vector)
    index = PacketIndex.build(source, "ns", dimension)
    expected = [(f"doc{place // 3:03d}", place % 3) for place in range(331)]
    hits = index.search(unit(rng.standard_normal(dimension)), top_k)
    assert names(hits) == expected[:top_k]
    assert len({hit.score for hit in hits}) == 1


def test_near_duplicates_never_cross_namespaces(source):
    rng = np.random.default_rng(2)
    base = rng.standard_normal(32)
    for place in range(1000):
        for namespace in ("north", "south"):
            vector = unit(base + 1e-4 * rng.standard_normal(32))
            source.put(namespace, f"{namespace}-{place}", 0, vector)
    for namespace in ("north", "south"):
        index = PacketIndex.build(source, namespace, 32)
        hits = index.search(unit(base), 2000)
        assert len(hits) == 1000
        assert all(hit.document_id.startswith(namespace) for hit in hits)


def test_every_segment_of_a_long_document_is_there(source, random_vectors):
    for place in range(40):
        source.put("ns", "long", place, random_vectors[place])
    index = PacketIndex.build(source, "ns", 16)
    for place in range(40):
        assert names(index.search(random_vectors[place], 1)) == [("long", place)]


def test_more_rows_than_a_block_are_read(source):
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((5000, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = {(f"d{n}", 0): (f"k{n}", vector.tobytes()) for n, vector in enumerate(vectors)}
    source.namespaces["ns"] = rows
    index = PacketIndex.build(source, "ns", 4)
    assert len(index) == 5000
    for place in (0, 4095, 4096, 4999):
        assert index.search(vectors[place], 1)[0].packet_key == f"k{place}"


@pytest.mark.parametrize("top_k", [0, -1])
def test_fewer_than_one_segment_is_a_usage_error(filled, random_vectors, top_k):
    with pytest.raises(UsageError, match="at least 1"):
        filled.search(random_vectors[0], top_k)


@pytest.mark.parametrize(
    "vector",
    [
        np.ones(15, np.float32) / np.sqrt(15),
        np.ones((1, 16), np.float32) / 4,
        np.zeros(16, np.float32),
        np.ones(16, np.float32),
        np.full(16, np.nan, np.float32),
        np.full(16, np.inf, np.float32),
        np.full(16, 3e38, np.float32),
    ],
)
def test_a_query_that_is_no_unit_vector_is_a_usage_error(filled, vector):
    with pytest.raises(UsageError, match="query vector"):
        filled.search(vector, 3)


@pytest.mark.parametrize("length_bytes", [0, 1, 63, 65, 128])
def test_an_embedding_of_another_size_names_its_document(source, filled, length_bytes):
    source.put_raw("ns", "odd one", 7, "key", bytes(length_bytes))
    with pytest.raises(ModelMismatchError, match=r"'odd one', segment 7.*ingest"):
        PacketIndex.build(source, "ns", 16)


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf, -np.inf, 3e38])
def test_a_damaged_embedding_names_its_document(source, filled, value):
    source.put("ns", "odd one", 7, np.full(16, value))
    with pytest.raises(StoreCorruptError, match=r"'odd one', segment 7.*ingest"):
        PacketIndex.build(source, "ns", 16)
