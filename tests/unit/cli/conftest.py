"""A store of one short document, which ``kvps`` opens with a tiny model."""

import pytest

import kvpacket_store as kv


@pytest.fixture
def folder(model, word_embedder, monkeypatch, tmp_path):
    path = tmp_path / "s.kvps"
    with kv.Store.create(path, model=model, embedder=word_embedder) as store:
        store.ingest([kv.Document(id="a", text="The river ends in the sea, after 12 days.")])
    monkeypatch.setattr("kvpacket_store.api.store.default_embedder", lambda: word_embedder)
    monkeypatch.setattr("kvpacket_store.models.load_model", lambda name: model)
    return path
