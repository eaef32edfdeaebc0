"""The decode benchmark: what its rows say, what it refuses, and what its page shows."""

import dataclasses

import pytest
from transformers import AutoModelForCausalLM

from kvpacket_store.api import Engine
from kvpacket_store.benchmarks.baseline import Baseline
from kvpacket_store.benchmarks.decode import DecodePlan, measure_decode
from kvpacket_store.benchmarks.decode_turns import Cell, Tally, decode_turn, tokens_per_s
from kvpacket_store.cli.decode_page import decode_page
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import UsageError
from kvpacket_store.types import Document

CONTRACT = {
    "compressor",
    "context_tokens",
    "batch",
    "exactness",
    "temperature",
    "mean_accepted",
    "repetition",
    "tokens_per_s",
    "full_tokens_per_s",
    "hf_tokens_per_s",
    "ratio",
    "identical",
    "tokens_compared",
    "draft_bits_per_scalar",
    "draft_tokens_kept_share",
}
DOCUMENTS = [
    Document("rhine", "The Rhine rises in the Alps and flows to the North Sea. " * 3),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea as well. " * 3),
]
PLAN = DecodePlan(
    contexts=(350,),
    batches=(1, 2),
    compressors=("base", "snapkv:0.25", "noise:0.5"),
    temperatures=(0.0, 0.8),
    new_tokens=12,
    runs=2,
)


@pytest.fixture
def store(new_store, model):
    layout = model.layout
    shape = PackShape(layout.num_layers, layout.num_kv_heads, layout.head_dim, 1)
    pack = dataclasses.replace(make_pack(shape, "bf16", 0), weights=model.fingerprint.weights)
    made = new_store(codec="linear", codec_pack=pack, kv_dtype="bf16")
    made.ingest(DOCUMENTS)
    return made


@pytest.fixture
def stock(tiny_config):
    return Baseline(AutoModelForCausalLM.from_config(tiny_config("llama")).eval(), "fp32", "sdpa")


def test_rows_are_the_contracts_and_the_page_shows_them(store, stock):
    shares, seen = [], []
    result = measure_decode(
        store, DOCUMENTS, PLAN, peers=[stock], progress=shares.append, on_row=seen.append
    )
    rows = {(r["compressor"], r["batch"], r["temperature"]): r for r in result["rows"]}
    names = ("auto", *PLAN.compressors)
    assert set(rows) == {(n, b, t) for n in names for b in PLAN.batches for t in (0.0, 0.8)}
    assert (shares[-1], shares, seen) == (1.0, sorted(shares), result["rows"])
    for (name, batch, temperature), row in rows.items():
        assert set(row) >= CONTRACT
        assert row["identical"] is True
        turns = PLAN.runs if temperature else 1  # greedy turns are all the same
        assert row["tokens_compared"] == batch * PLAN.new_tokens * turns
        assert min(row[f"{of}tokens_per_s"] for of in ("", "full_", "hf_")) > 0
        low, high = row["spread"]
        assert 0 < low <= row["ratio"] <= high
        assert 350 < row["context_tokens"] < 800
        drafted = name in PLAN.compressors
        assert (row["mean_accepted"] is not None) == drafted
        assert row["pinned"] is (name != "base")
    assert 0 < rows["base", 1, 0.0]["draft_bits_per_scalar"] < 16
    assert rows["snapkv:0.25", 1, 0.0]["draft_tokens_kept_share"] < 0.6
    page = decode_page(result)
    assert page.count("<svg") == 4
    assert "Of 432 tokens compared, all were" in page
    assert "<script" not in page


def test_without_a_peer_the_reason_is_told(store):
    plan = dataclasses.replace(PLAN, batches=(1,), compressors=(), temperatures=(0.0,), runs=1)
    result = measure_decode(store, DOCUMENTS, plan)
    (row,) = result["rows"]
    assert (row["compressor"], row["hf_tokens_per_s"]) == ("auto", None)
    assert row["hf_left_out"] in decode_page(result)


@pytest.mark.parametrize(
    "wrong", [{"compressors": ("nothing",)}, {"exactness": "nearly"}, {"temperatures": (-1.0,)}]
)
def test_what_cannot_be_measured_is_refused_before_anything_is(store, wrong):
    with pytest.raises(UsageError):
        measure_decode(store, DOCUMENTS, dataclasses.replace(PLAN, **wrong))


def test_requests_of_a_batch_are_equally_long_and_different(store):
    cell = Cell(("rhine", "elbe"), 2, "guarded", 0.8)
    first, second = cell.requests(3, "base", 5)
    assert (first["documents"], second["documents"]) == (["rhine", "elbe"], ["elbe", "rhine"])
    assert first["question"] != second["question"]
    assert (first["seed"], second["seed"]) == (6, 7)
    assert (first["decode"], first["compressor"]) == ("verified", "base")
    for name in ("full", "auto"):
        request = cell.requests(0, name, 5)[0]
        assert (request["decode"], request["compressor"]) == (name, None)


def test_an_answer_that_differs_is_told(store):
    engine = Engine(store)
    ask = {"question": "Where?", "documents": ["elbe"], "ignore_eos": True, "max_new_tokens": 6}
    full, other = (decode_turn(engine, [{**ask, **more}]) for more in ({}, {"max_new_tokens": 5}))
    tally = Tally()
    tally.take(full, full, is_new=True)
    assert tally.identical
    tally.take(other, full, is_new=False)
    assert (tally.identical, tally.tokens_compared) == (False, 6)
    answer = full[0]
    answer.timings_ms.first_token, answer.timings_ms.total = 100.0, 600.0
    assert tokens_per_s([answer]) == pytest.approx(10.0)
    assert tokens_per_s([answer, answer]) == pytest.approx(20.0)


def test_an_error_in_a_batch_is_raised(store):
    ask = {"question": "Where?", "documents": ["elbe"], "max_new_tokens": 3}
    with pytest.raises(UsageError):
        decode_turn(Engine(store), [ask, {**ask, "compressor": "nothing", "decode": "verified"}])
