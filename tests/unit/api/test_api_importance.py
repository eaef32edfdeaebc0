"""Importance made at prefill is filed with packets, and drafts drop tokens by it."""

import pytest
from verified_requests import DOCS, IDS, ask, keys_of

from kvpacket_store.api import Engine, Store
from kvpacket_store.api import importance as importance_room
from kvpacket_store.api.recode import recode
from kvpacket_store.codec import info

NAME = "importance:0.25"


@pytest.fixture
def store(new_store, pack):
    made = new_store(
        codec="linear", kv_dtype="bf16", codec_pack=pack, segment_tokens=64, importance=True
    )
    made.ingest(DOCS)
    return made


@pytest.fixture
def judged(monkeypatch):
    """The token ids of all packets that are judged from here on."""
    found = []
    compute = importance_room._computed

    def spying(store, body, token_ids):
        found.append(token_ids)
        return compute(store, body, token_ids)

    monkeypatch.setattr(importance_room, "_computed", spying)
    return found


def filed(store):
    return [store.packets.read_importance("default", key) for key in keys_of(store)]


def test_each_packet_has_a_byte_a_layer_head_and_position(store):
    layout = store.layout
    for key, data in zip(keys_of(store), filed(store), strict=True):
        manifest = store.packets.get_manifest("default", key)
        assert len(data) == layout.num_layers * layout.num_kv_heads * manifest.positions
        assert len(set(data)) > 5
    assert store.verify(deep=True).damaged == []


def test_drafts_on_it_give_the_plain_answer_and_nothing_is_judged_online(store, judged):
    engine = Engine(store)
    plain = ask(engine, decode="full")
    found = ask(engine, decode="verified", compressor=NAME)
    assert found.token_ids == plain.token_ids
    assert found.decode.draft_tokens_kept_share < 0.5
    assert judged == []


def test_a_store_without_it_judges_when_asked(layered_store, judged):
    engine = Engine(layered_store)
    assert filed(layered_store) == [None] * len(keys_of(layered_store))
    found = ask(engine, decode="verified", compressor="base*" + NAME)
    assert found.token_ids == ask(engine, decode="full").token_ids
    assert len(judged) == len(keys_of(layered_store))


def test_judged_at_prefill_or_when_asked_it_is_the_same(store, judged):
    loader_of = Engine(store)._assembler._loader
    made = [
        importance_room._computed(store, loader_of.body("default", key, IDS[0]).body, tokens)
        for key in keys_of(store)
        for tokens in [store.packets.get_manifest("default", key).token_ids]
    ]
    assert made == filed(store)


def test_the_important_slots_are_kept(store, monkeypatch):
    """Where one slot alone matters in every head, the draft has it."""
    layout = store.layout
    key = keys_of(store)[0]
    positions = store.packets.get_manifest("default", key).positions
    alone = bytearray(layout.num_layers * layout.num_kv_heads * positions)
    alone[7::positions] = b"\xff" * (layout.num_layers * layout.num_kv_heads)
    monkeypatch.setattr(
        store.packets, "read_importance", lambda _, k: bytes(alone) if k == key else None
    )
    engine = Engine(store)
    assembled = []
    maker, judge = engine.decoder._maker, engine.decoder._maker._importance
    monkeypatch.setattr(maker, "_importance", lambda a: assembled.append((a, judge(a))) or judge(a))
    ask(engine, decode="verified", compressor=NAME)
    prompt, scores = assembled[0]
    first = prompt.plan.packet_starts[0] + store.adapter.header_tokens
    own = scores[:, :, first : first + positions]
    assert (own[:, :, 7] == 1).all()
    assert (own.sum(-1) < 1.001).all()
    assert (scores[:, :, : prompt.plan.packet_starts[0]] == 1).all()


@pytest.mark.parametrize("data", [b"", b"\1" * 7])
def test_what_is_filed_wrongly_is_judged_anew(store, judged, monkeypatch, data):
    monkeypatch.setattr(store.packets, "read_importance", lambda *_: data)
    engine = Engine(store)
    found = ask(engine, decode="verified", compressor=NAME)
    assert found.token_ids == ask(engine, decode="full").token_ids
    assert len(judged) == len(keys_of(store))


def test_recoding_and_repair_keep_it(store, model):
    before = filed(store)
    recode(store, "fast", 1)
    assert filed(store) == before
    key = keys_of(store)[0]
    assert info(store.packets.read_packet("default", key).record).level == "fast"
    body = store.prefiller.segment(store.packets.get_manifest("default", key).token_ids)
    tokens = store.packets.get_manifest("default", key).token_ids
    Engine(store)._assembler._loader._repair("default", key, tokens, body)
    assert filed(store) == before


def test_a_store_opened_again_still_wants_it(store):
    path, model, embedder = store.path, store.model, store.embedder
    store.close()
    with Store.open(path, model=model, embedder=embedder) as again:
        assert again.meta.importance
        again.ingest([DOCS[1].__class__("new", "Another river is the Weser.", {})])
        key = again.show("new")["packets"][0]["packet_key"]
        assert again.packets.read_importance("default", key)
