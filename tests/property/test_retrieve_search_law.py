"""Law: a search equals sorting every row by score, then by name; with a filter, every row it keeps.

The oracle scores one row at a time in double precision and knows nothing of faiss.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.retrieve import PacketIndex

pytestmark = pytest.mark.property


def unit_rows(rng: np.random.Generator, count: int, dimension: int) -> np.ndarray:
    rows = rng.standard_normal((count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@st.composite
def corpora(draw):
    """Rows drawn from few distinct vectors, so that ties are everywhere."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dimension = draw(st.sampled_from([1, 2, 3, 7, 16, 33, 384]))
    distinct = unit_rows(rng, draw(st.integers(1, 40)), dimension)
    nearly = draw(st.sampled_from([0.0, 1e-7, 1e-5]))
    count = draw(st.integers(0, 400))
    vectors = distinct[rng.integers(0, len(distinct), count)]
    vectors = (vectors + nearly * rng.standard_normal(vectors.shape)).astype("<f4")
    names = [(f"d{place % 90}", place // 90) for place in range(count)]
    order = rng.permutation(count)
    rows = [(*names[place], f"key{place}", vectors[place].tobytes()) for place in order]
    query = distinct[0] if draw(st.booleans()) else unit_rows(rng, 1, dimension)[0]
    return rows, query, dimension


def by_hand(rows, query, top_k, kept):
    scored = []
    for document_id, segment_index, packet_key, embedding in rows:
        if kept is None or document_id in kept:
            vector = np.frombuffer(embedding, "<f4").astype(np.float64)
            scored.append((-float(np.sum(vector * query)), document_id, segment_index, packet_key))
    return sorted(scored)[:top_k]


@given(
    corpora(),
    st.integers(1, 420),
    st.none() | st.sets(st.integers(0, 89)).map(lambda numbers: {f"d{n}" for n in numbers}),
)
def test_a_search_equals_sorting_everything(corpus, top_k, kept):
    rows, query, dimension = corpus
    source = SimpleNamespace(iter_embeddings=lambda namespace: iter(rows))
    index = PacketIndex.build(source, "ns", dimension)
    hits = index.search(query, top_k, None if kept is None else kept.__contains__)
    found = [(-hit.score, hit.document_id, hit.segment_index, hit.packet_key) for hit in hits]
    assert found == by_hand(rows, query, top_k, kept)
    embeddings = {row[2]: np.frombuffer(row[3], "<f4") for row in rows}
    for hit in hits[:5]:
        exact = math.fsum(
            float(a) * float(b) for a, b in zip(embeddings[hit.packet_key], query, strict=True)
        )
        assert hit.score == pytest.approx(exact, abs=1e-13)
