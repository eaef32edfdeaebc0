"""Models whose rows are not alike: packed drafts in 16 bits, and blocks while K and V come."""

import threading
import time

import pytest
import torch
from verified_requests import DOCS, LONG, QUESTION, ask, begun_of, taken

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine, Store
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.models import Model, ViewCache

PACKED = {
    "guarded": ["int8", "snapkv:0.5*int4"],
    "bit": ["int8", "int4", "kivi:2", "streaming:0.3*kivi"],
}


@pytest.fixture
def store_of(tmp_path, word_embedder):
    """A function: model, options → a store of that model."""
    opened = []

    def make(model, **options):
        path = tmp_path / f"{len(opened)}.kvps"
        store = Store.create(
            path, model=model, embedder=word_embedder, segment_tokens=64, **options
        )
        opened.append(store)
        store.ingest(DOCS)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.mark.parametrize(("kind", "dtype"), [("llama", torch.float16), ("gemma3", torch.float32)])
def test_drafts_on_packed_views_go_row_by_row_and_decide_nothing(
    store_of, tiny_model, monkeypatch, kind, dtype
):
    model = tiny_model(kind, dtype)
    assert not model.rows_are_alike
    engine = Engine(store_of(model))
    forward, caches = Model.forward, []

    def seen(self, inputs, cache, **options):
        if len(inputs) == 1:
            caches.append(type(cache))
        return forward(self, inputs, cache, **options)

    monkeypatch.setattr(Model, "forward", seen)
    for exactness, names in PACKED.items():
        plain = ask(engine, decode="full", exactness=exactness)
        for name in names:
            caches.clear()
            options = {"decode": "verified", "compressor": name, "draft_tokens": 6}
            found = ask(engine, exactness=exactness, **options)
            assert found.token_ids == plain.token_ids, name
            assert ViewCache in caches
            assert found.decode.draft_bits_per_scalar < 16
            if name == "int8":
                assert found.usage.accepted_draft_tokens > found.usage.rejected_draft_tokens


@pytest.fixture
def windowed_engine(store_of, tiny_model, pack_of):
    """Two layers of packets, and a model whose rows are not alike: blocks, while K and V come."""
    model = tiny_model("mistral")
    rows = model.embedding.weight.detach()[:50].numpy()
    adapter = Adapter.untrained(rows, num_tokens=4)
    pack = pack_of(weights=model.fingerprint.weights)
    two_layers = {"codec": "linear", "layers": None, "kv_dtype": "bf16", "codec_pack": pack}
    return Engine(store_of(model, adapter=adapter, **two_layers), memory_bytes=0)


@pytest.mark.parametrize("keep", [True, False])
def test_a_layer_that_fails_amid_a_block_decides_nothing(windowed_engine, monkeypatch, keep):
    from kvpacket_store.api import swap_in

    assert not windowed_engine.store.model.rows_are_alike
    exact = {"exactness": "bit", "draft_tokens": 5}
    plain = ask(windowed_engine, decode="full", exactness="bit")
    place, failed = swap_in.place_layer, []
    begun = begun_of(windowed_engine, SwapPolicy(turns=taken()))
    last = max(part.start for part in begun.assembled.swap_parts)

    def placing(first, cache, layer, *args, **kwargs):
        on_its_way = threading.current_thread() is not threading.main_thread()
        if on_its_way and layer == 2 and kwargs["start"] == last and len(failed) < 3:
            failed.append(layer)
            time.sleep(0.2)  # the verification has begun meanwhile
            raise CorruptRecordError("damaged in the middle")
        place(first, cache, layer, *args, **kwargs)

    monkeypatch.setattr(swap_in, "place_layer", placing)
    windowed_engine.decoder.policy = SwapPolicy(keep=keep)
    for name in ("base", "base*noise:2", "base*int4"):
        failed.clear()
        found = windowed_engine.generate(
            QUESTION, **LONG, decode="verified", compressor=name, **exact
        )
        assert found.token_ids == plain.token_ids
        assert len(failed) == len(found.fallbacks) == (1 if keep else 3)
        assert not found.decode.pinned
