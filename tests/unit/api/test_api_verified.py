"""Drafts on packets' bases, exact K and V on their way: the answer is that of plain decoding."""

import threading
import time

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.api.turns import Turns
from kvpacket_store.errors import CancelledError, CorruptRecordError, KVPacketError, UsageError
from kvpacket_store.generate import Final, Provisional, decode_alone
from kvpacket_store.models import ViewCache
from kvpacket_store.types import Document

DOCS = [
    Document("rhine", "The Rhine rises in the Alps, passes Basel, and ends in a delta. " * 5, {}),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
IDS = ["rhine", "elbe"]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 30, "ignore_eos": True, "documents": IDS}
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
def store(new_store, pack_of):
    rows = np.random.default_rng(0).normal(0, 0.3, (50, 64))
    adapter = Adapter.untrained(rows, num_tokens=4)
    made = new_store(
        codec="linear",
        layers=None,
        kv_dtype="bf16",
        codec_pack=pack_of(),
        segment_tokens=64,
        adapter=adapter,
    )
    made.ingest(DOCS)
    return made


@pytest.fixture
def engine(store):
    return Engine(store, memory_bytes=0)


def ask(engine, **options):
    return engine.generate(QUESTION, **{**LONG, **options})


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
    positions = sum(
        store.packets.get_manifest("default", p["packet_key"]).positions
        for d in DOCS
        for p in store.show(d.id)["packets"]
    )
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


def taken():
    """Turns that another request has: nothing is fetched."""
    turns = Turns()
    assert turns.take("another")
    return turns


def begun_of(engine, policy, **options):
    """Begin a request by hand, to look between its steps."""
    from kvpacket_store.api.answer import Timings
    from kvpacket_store.api.request import checked_options
    from kvpacket_store.api.selection import Query

    chosen = checked_options(
        {"max_new_tokens": 30, "ignore_eos": True, "decode": "verified"} | options
    )
    query = Query(QUESTION, IDS, None, None, "default")
    return engine.begin(query, chosen, Timings(), policy=policy)


def test_while_drafts_run_the_exact_kv_is_not_in_memory_and_drafts_grow(engine, store):
    """The link to the enhancement is shut until 12 tokens are drafted."""
    is_open = threading.Event()
    policy = SwapPolicy(link=lambda _: is_open.wait(30))
    begun = begun_of(engine, policy, compressor="base*snapkv:0.25", draft_tokens=2)
    plain = ask(engine, decode="full").token_ids
    before = store.packets.bytes_read
    drafted, final = 0, []
    for event in decode_alone(begun.decoding, store.model.row_forward()):
        if isinstance(event, Provisional):
            drafted += 1
            if not final and drafted == 12:
                assert not begun.exact.is_here
                assert begun.resident_bytes < begun.exact.whole_bytes / 2
                assert store.packets.bytes_read.whole == before.whole
                is_open.set()
        elif isinstance(event, Final):
            assert is_open.is_set()
            final.append(event.token_id)
    assert drafted >= 12
    assert final == plain


def test_the_enhancement_is_not_read_before_it_is_wanted(engine, store):
    turns = taken()
    begun = begun_of(engine, SwapPolicy(turns=turns, streams_layers=False, keep=False))
    assert store.packets.bytes_read.base > 0
    assert store.packets.bytes_read.enhancement == 0
    assert begun.exact.resident_bytes == 0
    turns.leave("another")
    events = list(decode_alone(begun.decoding, store.model.row_forward()))
    assert [e.token_id for e in events if isinstance(e, Final)] == ask(
        engine, decode="full"
    ).token_ids
    assert store.packets.bytes_read.enhancement > 0
    assert begun.exact.resident_bytes < begun.exact.whole_bytes  # dropped again


def test_dropped_after_each_verification_it_comes_back(engine, store):
    policy = SwapPolicy(keep=False)
    begun = begun_of(engine, policy, compressor="base*noise:2")
    events = decode_alone(begun.decoding, store.model.row_forward())
    tokens = [e.token_id for e in events if isinstance(e, Final)]
    assert tokens == ask(engine, decode="full").token_ids
    assert begun.counts.rounds > 3
    enhancements = sum(
        store.packets.get_manifest("default", p["packet_key"]).layer_bytes[1]
        for d in DOCS
        for p in store.show(d.id)["packets"]
    )
    assert store.packets.bytes_read.enhancement >= begun.counts.rounds * enhancements


@pytest.mark.parametrize("failing", [0, 1, -1])
@pytest.mark.parametrize("streams", [True, False])
def test_a_swap_that_fails_falls_back(engine, store, monkeypatch, failing, streams):
    """Whatever packet cannot be completed is prefilled again; no token differs."""
    plain = ask(engine, decode="full").token_ids
    keys = [p["packet_key"] for d in DOCS for p in store.show(d.id)["packets"]]
    read = store.packets.read_enhancement

    def reading(namespace, key, *args, **kwargs):
        if key == keys[failing]:
            raise CorruptRecordError("damaged")
        return read(namespace, key, *args, **kwargs)

    monkeypatch.setattr(store.packets, "read_enhancement", reading)
    engine.decoder.policy = SwapPolicy(streams_layers=streams)
    answer = ask(engine, decode="verified")
    assert answer.token_ids == plain
    assert [f.packet_key for f in answer.fallbacks] == [keys[failing]]


def test_a_layer_that_fails_amid_a_verification_decides_nothing(engine, store, monkeypatch):
    from kvpacket_store.api import swap_in

    plain = ask(engine, decode="full").token_ids
    place, failed = swap_in.place_layer, []

    def failing(model, cache, layer, *args, **kwargs):
        last = max(part.start for part in parts)
        if layer == 2 and kwargs["start"] == last and not failed:
            failed.append(layer)
            time.sleep(0.2)  # the verification has begun meanwhile
            raise CorruptRecordError("damaged in the middle")
        place(model, cache, layer, *args, **kwargs)

    begun = begun_of(engine, SwapPolicy(turns=taken()))
    parts = begun.assembled.swap_parts
    monkeypatch.setattr(swap_in, "place_layer", failing)
    answer = ask(engine, decode="verified")
    assert failed == [2]
    assert answer.token_ids == plain
    assert len(answer.fallbacks) == 1


def test_a_damaged_base_costs_time_alone(engine, store, monkeypatch):
    plain = ask(engine, decode="full").token_ids
    monkeypatch.setattr(
        store.packets, "read_base", lambda *a, **k: (_ for _ in ()).throw(CorruptRecordError("x"))
    )
    answer = ask(engine, decode="verified")
    assert answer.token_ids == plain


@pytest.mark.parametrize("bad", [0, 2, -1])
@pytest.mark.parametrize("name", ["base", "base*snapkv:0.5"])
def test_one_base_that_cannot_be_read_is_made_again_beside_the_others(
    engine, store, monkeypatch, bad, name
):
    """Its exact K and V must reach the target too."""
    plain = ask(engine, decode="full").token_ids
    keys = [p["packet_key"] for d in DOCS for p in store.show(d.id)["packets"]]
    read = store.packets.read_base

    def reading(namespace, key, *args, **kwargs):
        if key == keys[bad]:
            raise CorruptRecordError("damaged")
        return read(namespace, key, *args, **kwargs)

    monkeypatch.setattr(store.packets, "read_base", reading)
    for policy in (SwapPolicy(), SwapPolicy(keep=False)):
        engine.decoder.policy = policy
        assert ask(engine, decode="verified", compressor=name).token_ids == plain


def test_a_document_deleted_meanwhile_ends_no_answer(engine, store):
    plain = ask(engine, decode="full").token_ids
    turns = taken()
    begun = begun_of(engine, SwapPolicy(turns=turns))
    store.delete("elbe")
    turns.leave("another")
    events = decode_alone(begun.decoding, store.model.row_forward())
    assert [e.token_id for e in events if isinstance(e, Final)] == plain
    assert begun.fallbacks()


@pytest.mark.parametrize("name", ["base+snapkv:0.25", "lookup+base+int8", "noise:1e38", "fp8+int4"])
def test_drafts_in_a_row_and_drafts_that_are_no_numbers(engine, name):
    plain = ask(engine, decode="full")
    assert ask(engine, decode="verified", compressor=name).token_ids == plain.token_ids


def test_a_wrong_name_is_refused_in_every_mode(engine):
    for decode in ("full", "auto", "verified"):
        for consistency in ("packet", "recompute"):
            with pytest.raises(UsageError):
                ask(engine, decode=decode, compressor="bogus", consistency=consistency)


def test_a_batch_names_what_is_no_request_and_takes_iterators_once(engine):
    good = {"question": QUESTION, **LONG, "documents": IDS}
    plain = engine.generate(**good).token_ids
    again = [{**good, "documents": iter(IDS)} for _ in range(3)]
    found = engine.generate_many([{"documents": IDS}, "nothing", *again], memory_bytes=1000)
    assert all(isinstance(error, UsageError) for error in found[:2])
    assert [answer.token_ids for answer in found[2:]] == [plain] * 3
    with pytest.raises(UsageError, match="memory_bytes"):
        engine.generate_many([good], memory_bytes=-1)


def test_under_a_limit_requests_take_turns(engine):
    """Nobody's first token waits for the end of another."""
    request = {"question": QUESTION, **LONG, "decode": "verified", "compressor": "base*noise:2"}
    answers = engine.generate_many([request] * 3, memory_bytes=1 << 30)
    firsts = [answer.timings_ms.first_token for answer in answers]
    assert max(firsts) < min(answer.timings_ms.total for answer in answers)
    assert len({tuple(answer.token_ids) for answer in answers}) == 1


def test_stop_strings_inside_a_draft_end_the_answer(engine):
    text = ask(engine, decode="full").text
    stop = text[10:12]
    plain = ask(engine, decode="full", stop=stop)
    found = ask(engine, decode="verified", compressor="exact", stop=stop)
    assert (found.text, found.token_ids) == (plain.text, plain.token_ids)
    assert found.decode.finish_reason == "stop"


def test_cancelling_ends_a_request_that_waits(engine):
    cancel = threading.Event()
    shut = threading.Event()
    engine.decoder.policy = SwapPolicy(link=lambda _: shut.wait(30))
    stream = engine.stream(QUESTION, **LONG, decode="verified", cancel=cancel)
    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        list(stream)
    assert time.monotonic() - started < 20  # the link is still shut
    shut.set()


def test_packets_draft_for_a_joint_prefill(engine):
    plain = ask(engine, decode="full", consistency="recompute")
    found = ask(engine, decode="verified", consistency="recompute")
    assert found.token_ids == plain.token_ids
    assert found.decode.mode == "verified"
    assert found.decode.rounds > 0


REQUESTS = [
    {"question": QUESTION, **LONG, "decode": "full"},
    {"question": "And the Elbe?", "documents": ["elbe"], "max_new_tokens": 9, "ignore_eos": True},
    {"question": QUESTION, **LONG, "decode": "verified"},
    {"question": QUESTION, **LONG, "decode": "verified", "compressor": "base*snapkv:0.5"},
    {"question": "x", "documents": IDS, "max_new_tokens": 20, "temperature": 0.8, "seed": 3},
    {"question": QUESTION, "documents": ["nobody"]},
    {"question": QUESTION, **LONG, "decode": "verified", "consistency": "recompute"},
]


@pytest.mark.parametrize("share", [None, 3.0])
def test_many_together_get_what_each_gets_alone(engine, share):
    whole = begun_of(engine, SwapPolicy(turns=taken())).exact.whole_bytes
    memory_bytes = None if share is None else int(share * whole)
    found = engine.generate_many(REQUESTS, memory_bytes=memory_bytes)
    for request, answer in zip(REQUESTS, found, strict=True):
        if request["documents"] == ["nobody"]:
            assert isinstance(answer, KVPacketError)
            continue
        assert answer.token_ids == engine.generate(**request).token_ids
        assert answer.timings_ms.total >= answer.timings_ms.first_token


def test_three_times_as_many_run_at_once_on_drafts(engine):
    from kvpacket_store.api.batch import Batch

    whole = begun_of(engine, SwapPolicy(turns=taken())).exact.whole_bytes
    largest = {}
    for decode in ("full", "verified"):
        request = {"question": QUESTION, **LONG, "max_new_tokens": 6, "decode": decode}
        if decode == "verified":
            request["compressor"] = "base*streaming:0.1*int8"
        batch = Batch(engine, memory_bytes=int(4.5 * whole))
        answers = batch.run([request] * 16)
        largest[decode] = batch.largest
        assert {tuple(a.token_ids) for a in answers} == {tuple(answers[0].token_ids)}
    assert largest["full"] == 4
    assert largest["verified"] >= 12


def test_packed_drafts_stay_packed(engine):
    begun = begun_of(engine, SwapPolicy(), compressor="base*int4")
    assert isinstance(begun.drafting.caches[0], ViewCache)
    assert begun.resident_bytes < begun.exact.whole_bytes / 2
    assert begun.assembled.cache.resident_bytes == 0  # the base itself is let go
