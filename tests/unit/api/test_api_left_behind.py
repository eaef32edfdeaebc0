"""An adapter whose header shapes packets and takes no slot: drafts, importance, a joint prefill."""

from dataclasses import replace

import pytest
from verified_requests import DOCS

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.importance import _computed

ASKED = {"documents": [d.id for d in DOCS], "max_new_tokens": 16, "ignore_eos": True}


@pytest.fixture
def left_store(new_store, layered_store, pack_of):
    store = new_store(
        name="left.kvps",
        codec="linear",
        layers=None,
        kv_dtype="bf16",
        codec_pack=pack_of(),
        segment_tokens=64,
        adapter=replace(layered_store.adapter, header_stays=False),
    )
    store.ingest(DOCS)
    return store


@pytest.mark.parametrize("compressor", ["base", "base*snapkv:0.5", "importance:0.5"])
def test_verified_answers_are_the_plain_ones(left_store, compressor):
    engine = Engine(left_store, memory_bytes=0)
    plain = engine.generate("Where?", decode="full", **ASKED)
    verified = engine.generate("Where?", decode="verified", compressor=compressor, **ASKED)
    assert verified.token_ids == plain.token_ids
    assert verified.decode.mode == "verified"
    packets = [p for d in plain.documents for p in d.packets]
    assert plain.usage.adapter_tokens == 4 * len(packets)  # trailers
    assert left_store.packet(DOCS[0].id).header_tokens == 0


def test_importance_is_judged_behind_the_header_that_a_packet_was_prefilled_behind(
    left_store, layered_store
):
    """Where it stays and where it does not, a body is the same: so is what it needs of itself."""
    judged = []
    for store in (left_store, layered_store):
        packet = store.packet(DOCS[0].id)
        body = store.prefiller.segment(packet.token_ids)
        judged.append(_computed(store, body, packet.token_ids))
    assert judged[0] == judged[1]


def test_recompute_has_no_header_to_leave_out(left_store, layered_store):
    answers = [
        Engine(store).generate("Where?", consistency="recompute", **ASKED)
        for store in (left_store, layered_store)
    ]
    assert answers[0].token_ids == answers[1].token_ids


def test_a_store_that_is_opened_again_has_the_same_adapter(left_store, model, word_embedder):
    path, digest = left_store.path, left_store.adapter.digest
    left_store.close()
    with Store.open(path, model=model, embedder=word_embedder) as store:
        assert (store.adapter.digest, store.adapter.header_stays) == (digest, False)
        assert store.verify(deep=True, recompute=2).damaged == []
