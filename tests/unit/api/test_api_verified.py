"""Whatever drafts, on packets' bases or views, the answer is that of plain decoding."""

import numpy as np
import pytest
from verified_requests import DOCS, LONG, QUESTION, ask, begun_of, keys_of

from kvpacket_store.api import Engine
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import UsageError
from kvpacket_store.models import ViewCache

COMPRESSORS = [
    "base",
    "base*snapkv:0.5",
    "base*int8",
    "exact",
    "noise:2",
    "int4",
    "fp8",
    "kivi",
    "kvquant",
    "tova:0.25",
    "h2o:0.25",
    "scissorhands:0.25",
    "keydiff:0.5",
    "streaming:0.25",
    "random:0.25",
    "snapkv:0.25*int8",
    "lookup",
    "lookup+base",
    "lookup+snapkv:0.25",
]
SAMPLED = ["base", "snapkv:0.25*int8", "lookup+base"]


@pytest.fixture
def store(layered_store):
    return layered_store


@pytest.fixture
def engine(layered_engine):
    return layered_engine


@pytest.mark.parametrize(
    ("name", "temperature"), [*((c, 0.0) for c in COMPRESSORS), *((c, 0.9) for c in SAMPLED)]
)
def test_whatever_drafts_the_answer_is_that_of_plain_decoding(engine, name, temperature):
    options = {"temperature": temperature, "seed": 11}
    plain = ask(engine, decode="full", **options)
    assert plain.decode.mode == "full"
    exactness = "bit" if len(name) % 2 else "guarded"
    found = ask(engine, decode="verified", compressor=name, exactness=exactness, **options)
    assert found.token_ids == plain.token_ids
    assert found.text == plain.text
    assert found.decode.mode == "verified"
    assert found.decode.pinned == (not name.startswith(("base", "lookup+base")))
    assert found.usage.completion_tokens == 30
    assert found.usage.prompt_tokens == plain.usage.prompt_tokens
    assert found.fallbacks == []


def test_every_way_to_sample_is_plain_decodings(engine):
    for options in (
        {"repetition_penalty": 1.3},
        {"temperature": 1.1, "seed": 1, "sampling_top_k": 9, "top_p": 0.8},
    ):
        plain = ask(engine, decode="full", **options)
        assert ask(engine, decode="verified", **options).token_ids == plain.token_ids
        assert ask(engine, decode="auto", **options).token_ids == plain.token_ids


def test_a_draft_on_the_exact_kv_is_always_right(engine):
    answer = ask(engine, decode="verified", compressor="exact")
    assert answer.usage.rejected_draft_tokens == 0
    assert answer.usage.accepted_draft_tokens > 0
    assert answer.decode.mean_accepted == pytest.approx(
        answer.usage.accepted_draft_tokens / answer.decode.rounds
    )


def test_drafts_are_as_long_as_asked(engine):
    answer = ask(engine, decode="verified", compressor="exact", draft_tokens=5)
    assert answer.decode.mean_accepted == pytest.approx(5, abs=0.5)
    for wrong in (0, 65, "many"):
        with pytest.raises(UsageError, match="draft_tokens"):
            ask(engine, decode="verified", draft_tokens=wrong)


def test_without_a_name_the_base_drafts(engine, store, new_store):
    answer = ask(engine, decode="verified")
    read = store.packets.bytes_read
    positions = sum(store.packets.get_manifest("default", key).positions for key in keys_of(store))
    scalars = 2 * np.prod(store.layout.shape(positions))
    assert answer.decode.draft_tokens_kept_share == 1.0
    assert not answer.decode.pinned
    # read twice: once for the draft, once to be completed
    assert answer.decode.draft_bits_per_scalar == pytest.approx(8 * read.base / 2 / scalars)
    one_layer = new_store(name="fast.kvps")
    one_layer.ingest(DOCS)
    other = Engine(one_layer).generate(QUESTION, **LONG, decode="verified")
    assert other.decode.pinned
    assert other.decode.draft_tokens_kept_share < 1


def test_an_unknown_compressor_is_refused_before_anything_is_read(engine, store):
    for name in ("zip", "snapkv", "base*zip", "lookup+", "int8*int4"):
        with pytest.raises(UsageError):
            ask(engine, decode="verified", compressor=name)
    assert store.packets.bytes_read.base == 0


@pytest.mark.parametrize("name", ["base+snapkv:0.25", "lookup+base+int8", "noise:1e38", "fp8+int4"])
def test_drafts_in_a_row_and_drafts_that_are_no_numbers(engine, name):
    plain = ask(engine, decode="full")
    assert ask(engine, decode="verified", compressor=name).token_ids == plain.token_ids


def test_a_wrong_name_is_refused_in_every_mode(engine):
    for decode in ("full", "auto", "verified"):
        for consistency in ("packet", "recompute"):
            with pytest.raises(UsageError):
                ask(engine, decode=decode, compressor="bogus", consistency=consistency)


def test_stop_strings_inside_a_draft_end_the_answer(engine):
    text = ask(engine, decode="full").text
    stop = text[10:12]
    plain = ask(engine, decode="full", stop=stop)
    found = ask(engine, decode="verified", compressor="exact", stop=stop)
    assert (found.text, found.token_ids) == (plain.text, plain.token_ids)
    assert found.decode.finish_reason == "stop"


def test_packets_draft_for_a_joint_prefill(engine):
    plain = ask(engine, decode="full", consistency="recompute")
    found = ask(engine, decode="verified", consistency="recompute")
    assert found.token_ids == plain.token_ids
    assert found.decode.mode == "verified"
    assert found.decode.rounds > 0


def test_packed_drafts_stay_packed(engine):
    begun = begun_of(engine, SwapPolicy(), compressor="base*int4")
    assert isinstance(begun.drafting.caches[0], ViewCache)
    assert begun.resident_bytes < begun.exact.whole_bytes / 2
    assert begun.assembled.cache.resident_bytes == 0  # the base itself is let go
