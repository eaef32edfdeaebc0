"""Packets, made small as the request says, draft for a joint prefill of the same tokens."""

import pytest
from verified_requests import ask, begun_of

from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import UsageError
from kvpacket_store.models import ViewCache

NAMES = [
    None,
    "exact",
    "snapkv:0.25",
    "int8",
    "snapkv:0.5*int4",
    "lookup",
    "lookup+snapkv:0.25",
    "snapkv:0.25+exact",
    "base",
    "base*snapkv:0.5",
    "lookup+base*int8",
    "importance:0.25",
    "base*importance:0.5",
]


@pytest.fixture
def engine(layered_engine):
    return layered_engine


def recomputed(engine, name, **options):
    return ask(engine, decode="verified", consistency="recompute", compressor=name, **options)


@pytest.mark.parametrize("sampled", [{}, {"temperature": 0.9, "seed": 4}])
def test_whatever_the_packets_become_the_answer_is_the_joint_prefills(engine, sampled):
    plain = ask(engine, decode="full", consistency="recompute", **sampled)
    for name in NAMES:
        for exactness in ("bit", "guarded"):
            found = recomputed(engine, name, exactness=exactness, **sampled)
            assert found.token_ids == plain.token_ids, name
            assert found.decode.mode == "verified"
            assert found.decode.pinned
            assert found.usage.cached_tokens == 0
        chosen = ask(engine, decode="auto", consistency="recompute", compressor=name, **sampled)
        assert chosen.token_ids == plain.token_ids, name
        if name == "base":
            assert chosen.decode.draft_bits_per_scalar < 16


def test_the_answer_says_how_small_they_are(engine):
    told = {name: recomputed(engine, name).decode for name in NAMES}
    kept = {name: decode.draft_tokens_kept_share for name, decode in told.items()}
    bits = {name: decode.draft_bits_per_scalar for name, decode in told.items()}
    assert kept["lookup"] is bits["lookup"] is None
    for name in (None, "exact"):
        assert (kept[name], bits[name]) == (1.0, 16.0)
    for name in ("int8", "base", "lookup+base*int8"):
        assert kept[name] == 1.0
    dropping = ("snapkv:0.25", "snapkv:0.5*int4", "lookup+snapkv:0.25", "base*snapkv:0.5")
    for name in (*dropping, "importance:0.25", "base*importance:0.5"):
        assert kept[name] < 0.6
    assert 8 < bits["int8"] <= 10  # with scales
    assert bits["snapkv:0.5*int4"] < 4
    assert bits["base"] < 16
    assert bits["base*snapkv:0.5"] == pytest.approx(bits["base"] * kept["base*snapkv:0.5"])


def test_packets_that_were_made_small_are_let_go_and_bases_alone_are_read(engine):
    options = {"consistency": "recompute"}
    read = engine.store.packets.bytes_read
    begun = begun_of(engine, SwapPolicy(), compressor="base*snapkv:0.5*int8", **options)
    assert engine.store.packets.bytes_read.base > read.base
    assert engine.store.packets.bytes_read.enhancement == read.enhancement
    assert isinstance(begun.drafting.caches[0], ViewCache)
    assert begun.assembled.draft.cache.resident_bytes == 0
    whole = begun_of(engine, SwapPolicy(), **options)
    assert whole.drafting.caches == [whole.assembled.draft.cache]


def test_packets_are_not_assembled_where_nothing_drafts_on_them(engine):
    begun = begun_of(engine, SwapPolicy(), compressor="lookup", consistency="recompute")
    assert begun.assembled.draft is None
    read = engine.store.packets.bytes_read
    assert (read.base, read.whole) == (0, 0)


def test_a_wrong_name_is_refused_before_anything_is_read(engine):
    with pytest.raises(UsageError, match="bogus"):
        recomputed(engine, "snapkv:0.25+bogus")
    assert engine.store.packets.bytes_read.base == 0
