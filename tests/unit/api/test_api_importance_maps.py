"""A map fitted to a store's packets is kept in it, and drafts drop tokens by it."""

from pathlib import Path

import pytest
from verified_requests import DOCS, ask, keys_of

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.importance_maps import fit_importance_map, map_of
from kvpacket_store.errors import ReadOnlyError, UsageError
from kvpacket_store.types import Document

NAME = "kvzap:0.25"


def test_a_fitted_map_is_kept_and_used(layered_store):
    engine = Engine(layered_store)
    with pytest.raises(UsageError, match="kvps fit-importance"):
        ask(engine, compressor=NAME)
    report = fit_importance_map(layered_store)
    assert report.packets + report.held_out_packets == len(keys_of(layered_store))
    assert 0 <= report.found_share <= 1
    found = ask(engine, decode="verified", compressor=NAME)
    assert found.token_ids == ask(engine, decode="full").token_ids
    assert found.decode.draft_tokens_kept_share < 0.5
    path, model = layered_store.path, layered_store.model
    layered_store.close()
    with Store.open(path, model=model) as again:
        assert map_of(again) is not None


def test_it_finds_what_matters_in_packets_that_it_was_fitted_to(new_store):
    """A random model's importance is hardly linear in K and V; what there is of it is found."""
    store = new_store(segment_tokens=64)
    store.ingest([Document(str(i), f"Number {i}: {DOCS[0].text[i:]}", {}) for i in range(9)])
    report = fit_importance_map(store, tokens=2_000)
    assert report.found_share > 0.35  # 0.25 by chance


def test_stages_are_told(layered_store):
    told = []
    fit_importance_map(layered_store, progress=lambda stage, share: told.append((stage, share)))
    assert {stage for stage, _ in told} == {"judge", "measure"}
    assert all(0 <= share < 1 for _, share in told)


def test_too_few_packets_are_refused(new_store):
    store = new_store()
    store.ingest([DOCS[1]])
    with pytest.raises(UsageError, match="has 1 packets"):
        fit_importance_map(store)


def test_a_store_for_reading_alone_takes_none(layered_store):
    path, model = layered_store.path, layered_store.model
    layered_store.close()
    with (
        Store.open(path, model=model, read_only=True) as again,
        pytest.raises(ReadOnlyError, match="reading alone"),
    ):
        fit_importance_map(again)


def test_a_damaged_map_is_named(layered_store):
    report = fit_importance_map(layered_store)
    Path(report.path).write_bytes(b"spoilt")
    with pytest.raises(UsageError, match="cannot be read"):
        ask(Engine(layered_store), compressor=NAME)


def test_a_packet_of_two_namespaces_is_looked_at_once(layered_store):
    layered_store.ingest(DOCS, namespace="other")
    report = fit_importance_map(layered_store)
    assert report.packets + report.held_out_packets == len(keys_of(layered_store))
