"""A store whose adapter corrects packets behind others: answers, drafts, keys."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from verified_requests import DOCS, IDS, ask

from kvpacket_store.adapters import Correction, save_adapter
from kvpacket_store.api import Engine, Store
from kvpacket_store.errors import AdapterError, ModelError
from kvpacket_store.models import PromptFormat
from kvpacket_store.quality.packets import PacketSet
from kvpacket_store.quality.prompt import PromptTokens


@pytest.fixture
def corrected_store(new_store, layered_store, pack_of, model):
    layout = model.layout
    shape = (3, 2, layout.num_layers, layout.num_kv_heads)
    rng = np.random.default_rng(0)
    maps = 0.3 * rng.standard_normal((*shape, layout.head_dim, layout.head_dim)).astype(np.float32)
    biases = rng.standard_normal((*shape, 10, layout.head_dim)).astype(np.float32)
    adapter = replace(layered_store.adapter, correction=Correction(maps, biases, 20))
    store = new_store(
        name="corrected.kvps", codec="linear", layers=None, kv_dtype="bf16", codec_pack=pack_of(),
        segment_tokens=64, adapter=adapter,
    )  # fmt: skip
    store.ingest(DOCS)
    return store


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
@pytest.mark.parametrize("compressor", ["base", "base*snapkv:0.5", "snapkv:0.5*int8"])
def test_verified_answers_are_the_plain_ones(corrected_store, compressor, memory_bytes):
    engine = Engine(corrected_store, memory_bytes=memory_bytes)
    plain = ask(engine, decode="full")
    verified = ask(engine, decode="verified", compressor=compressor)
    assert verified.token_ids == plain.token_ids


def test_packets_are_those_of_the_adapter_without_it_and_answers_are_not(
    corrected_store, layered_store
):
    keys = [
        [p["packet_key"] for d in IDS for p in store.show(d)["packets"]]
        for store in (corrected_store, layered_store)
    ]
    assert keys[0] == keys[1]
    engines = [Engine(store) for store in (corrected_store, layered_store)]
    assert ask(engines[0]).token_ids != ask(engines[1]).token_ids
    first = [ask(e, documents=["elbe"]).token_ids for e in engines]  # one packet: the first
    assert first[0] == first[1]
    assert corrected_store.verify(deep=True, recompute=2).damaged == []


def test_a_store_that_is_opened_again_corrects_as_before(corrected_store, model, word_embedder):
    before = ask(Engine(corrected_store)).token_ids
    path = corrected_store.path
    corrected_store.close()
    with Store.open(path, model=model, embedder=word_embedder) as store:
        assert ask(Engine(store)).token_ids == before


def test_quality_is_measured_on_what_a_request_gets(corrected_store):
    store = corrected_store
    cache, _ = Engine(store).assemble("Where?", documents=IDS, max_new_tokens=1)
    places = [(d, i) for d in IDS for i in range(len(store.show(d)["packets"]))]
    segments = tuple(store.packet(d, index=i).token_ids for d, i in places)
    preamble = PromptFormat(store.model.tokenizer).preamble_ids
    prompt = PromptTokens(preamble, segments, (1,), (1,), (), 1)
    placed = PacketSet(store.prefiller, prompt).place()
    end = cache.length
    assert placed.length == end
    assert torch.equal(placed.k_slots[:, :, :end], cache.k_slots[:, :, :end])
    assert torch.equal(placed.v_slots[:, :, :end], cache.v_slots[:, :, :end])


def test_packets_travel_between_a_store_with_the_adapter_and_one_with_it_corrected(
    corrected_store, layered_store, tmp_path
):
    expected = ask(Engine(corrected_store)).token_ids
    layered_store.export_bundle(tmp_path / "b.kvpb")
    taken = corrected_store.import_bundle(tmp_path / "b.kvpb", namespace="brought")
    assert (taken.added, taken.errors) == (len(DOCS), [])
    answer = ask(Engine(corrected_store), namespace="brought")
    assert answer.token_ids == expected
    assert answer.fallbacks == []


@pytest.mark.parametrize("damage", ["lost", "another"])
def test_an_adapter_file_that_is_lost_is_named_and_no_packet_is_called_damaged(
    corrected_store, layered_store, model, word_embedder, damage
):
    path = corrected_store.path
    corrected_store.close()
    file = path / "adapter.safetensors"
    file.unlink()
    if damage == "another":  # the same header, without the correction
        save_adapter(layered_store.adapter, file)
    with Store.open(path, model=model, embedder=word_embedder) as store:
        assert store.verify(deep=True).damaged == []
        with pytest.raises(ModelError, match=r"adapter\.safetensors"):
            ask(Engine(store))


def test_a_correction_of_another_shape_is_refused_before_anything_is_made(
    corrected_store, new_store
):
    correction = corrected_store.adapter.correction
    less = Correction(correction.maps[:, :, 1:].copy(), correction.biases[:, :, 1:].copy(), 20)
    with pytest.raises(AdapterError, match="others"):
        new_store(name="wrong.kvps", adapter=replace(corrected_store.adapter, correction=less))
    assert not (corrected_store.path.parent / "wrong.kvps").exists()
