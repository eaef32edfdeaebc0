"""A smaller model of the same tokenizer drafts; the answer stays the store's model's."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from verified_requests import DOCS, IDS, LONG, QUESTION, ask, begun_of

from kvpacket_store.api import Engine
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import ModelError, UsageError
from kvpacket_store.models import HFTokenizer, Model

MODEL = {"decode": "verified", "compressor": "model"}


@pytest.fixture
def twin(model):
    """The store's model again: another object of the same weights."""
    return Model("twin", copy.deepcopy(model.hf), model.tokenizer)


@pytest.fixture
def small(model):
    """A function: positions, vocabulary → a smaller model with other weights."""

    def make(max_positions=2048, vocabulary=260):
        torch.manual_seed(3)
        config = LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=max_positions,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=256,
            pad_token_id=256,
        )
        return Model("small", AutoModelForCausalLM.from_config(config), model.tokenizer)

    return make


@pytest.fixture
def store(layered_store):
    return layered_store


def engine_with(store, draft_model):
    return Engine(store, memory_bytes=0, draft_model=draft_model)


@pytest.mark.parametrize("sampled", [{}, {"temperature": 0.9, "seed": 11}])
def test_whatever_the_model_says_the_answer_is_that_of_plain_decoding(store, small, sampled):
    """Of other vocabularies too: they are padded differently; a rejected draft is rolled back."""
    plain = ask(Engine(store), decode="full", **sampled)
    names = {
        260: ("model", "lookup+model", "model+snapkv:0.25", "model+base"),
        300: ("model",),
        259: ("model",),
    }
    for vocabulary, asked in names.items():
        engine = engine_with(store, small(vocabulary=vocabulary))
        for name in asked:
            found = ask(engine, decode="verified", compressor=name, draft_tokens=5, **sampled)
            assert found.token_ids == plain.token_ids, name
            assert found.usage.rejected_draft_tokens > 0
            assert found.decode.mode == "verified"
    penalty = sampled | {"repetition_penalty": 1.3}
    reference = ask(engine, decode="full", **penalty)
    assert ask(engine, **MODEL, **penalty).token_ids == reference.token_ids


@pytest.fixture
def plain_store(new_store):
    """Without an adapter: what both models read is the same but for who sees whom."""
    store = new_store(name="plain.kvps")
    store.ingest(DOCS)
    return store


@pytest.mark.parametrize("sampled", [{}, {"temperature": 0.9, "seed": 11}])
def test_a_model_that_is_the_target_is_always_right(plain_store, twin, sampled):
    """It reads what a joint prefill reads, and rows are alike."""
    engine = engine_with(plain_store, twin)
    recompute = {"consistency": "recompute", "draft_tokens": 5, **sampled}
    plain = ask(engine, decode="full", **recompute)
    found = ask(engine, **MODEL, **recompute)
    assert found.token_ids == plain.token_ids
    assert found.usage.rejected_draft_tokens == 0
    assert found.decode.mean_accepted > 4
    assert found.decode.draft_bits_per_scalar is None
    assert found.decode.draft_tokens_kept_share is None


def test_after_a_rejection_it_goes_on_from_what_was_accepted(plain_store, twin, monkeypatch):
    """Every seventh step it says the least likely token, and goes on; all else is right."""
    from kvpacket_store.generate import ModelDraft

    engine, rounds = engine_with(plain_store, twin), []
    own, learn, steps = engine.decoder._maker._draft_model._own_run, ModelDraft.learn, [0, False]

    def misled(works):
        found = own(works)
        steps[0] += not works[0].is_prompt
        if steps[0] % 7 == 0 and not works[0].is_prompt:
            steps[1] = True
            return [-logits for logits in found]
        return found

    def heard(self, proposed, accepted):
        rounds.append((steps[1], proposed, accepted))
        steps[1] = False
        learn(self, proposed, accepted)

    options = {"consistency": "recompute", "draft_tokens": 5}
    plain = ask(engine, decode="full", **options)
    monkeypatch.setattr(engine.decoder._maker._draft_model, "_own_run", misled)
    monkeypatch.setattr(ModelDraft, "learn", heard)
    assert ask(engine, **MODEL, **options).token_ids == plain.token_ids
    assert [accepted < proposed for _, proposed, accepted in rounds] == [r[0] for r in rounds]
    assert [r[0] for r in rounds[:-1]].count(False) > 1 < [r[0] for r in rounds].count(True)


def test_many_together_share_the_draft_models_passes(store, small, twin, monkeypatch):
    for draft_model in (small(), twin):
        engine = engine_with(store, draft_model)
        sizes, own = [], engine.decoder._maker._draft_model._own_run

        def counted(works, own=own, sizes=sizes):
            sizes.append(len([work for work in works if not work.is_prompt]))
            return own(works)

        monkeypatch.setattr(engine.decoder._maker._draft_model, "_own_run", counted)
        requests = [
            {"question": QUESTION, **LONG, **MODEL, "draft_tokens": 4},
            {"question": "And the Elbe?", **LONG, **MODEL, "draft_tokens": 4},
            {"question": "x", "documents": IDS, "max_new_tokens": 20, "decode": "full"},
            {"question": QUESTION, **LONG, "decode": "verified", "compressor": "lookup+model"},
            {"question": QUESTION, **LONG, "decode": "verified", "compressor": "base"},
        ]
        found = engine.generate_many(requests)
        assert max(sizes) >= 2
        for request, answer in zip(requests, found, strict=True):
            assert answer.token_ids == engine.generate(**request | {"decode": "full"}).token_ids


def test_a_prompt_longer_than_it_knows_is_not_read(store, small):
    engine = engine_with(store, small(max_positions=64))
    plain = ask(engine, decode="full")
    found = ask(engine, **MODEL)
    assert found.token_ids == plain.token_ids
    assert found.usage.accepted_draft_tokens + found.usage.rejected_draft_tokens == 0
    begun = begun_of(engine, SwapPolicy(), compressor="model")
    assert begun.drafting.resident_bytes == 0
    other = ask(engine, decode="verified", compressor="model+exact")
    assert other.token_ids == plain.token_ids
    assert other.usage.accepted_draft_tokens > 0


def test_where_its_positions_end_amid_the_answer_it_stops(store, small):
    positions = len(begun_of(Engine(store), SwapPolicy()).assembled.text_ids) + 9
    engine = engine_with(store, small(max_positions=positions))
    found = ask(engine, **MODEL, draft_tokens=4)
    assert found.token_ids == ask(engine, decode="full").token_ids
    tried = found.usage.accepted_draft_tokens + found.usage.rejected_draft_tokens
    assert 0 < tried < 4 * found.decode.rounds


def test_it_reads_the_prompt_late_and_once_and_its_memory_counts(store, small, monkeypatch):
    draft_model = small()
    engine = engine_with(store, draft_model)
    prompts, own = [], engine.decoder._maker._draft_model._own_run

    def counted(works):
        prompts.extend(tuple(work.token_ids) for work in works if work.is_prompt)
        return own(works)

    monkeypatch.setattr(engine.decoder._maker._draft_model, "_own_run", counted)
    begun = begun_of(engine, SwapPolicy(), compressor="model")
    assert prompts == []
    text_ids = begun.assembled.text_ids
    soft = begun.assembled.adapter_tokens
    assert 0 < soft == len(begun.assembled.prompt_token_ids) - len(text_ids)
    needed = draft_model.cache_bytes(len(text_ids) + 30)
    assert begun.drafting.resident_bytes == needed
    assert begun.resident_bytes == needed + begun.exact.whole_bytes
    ask(engine, **MODEL)
    assert prompts == [text_ids]
    prompts.clear()
    ask(engine, decode="full")
    ask(engine, decode="verified", compressor="base")
    assert prompts == []


def test_requests_that_name_nothing_are_drafted_for_by_the_model(store, small):
    engine = engine_with(store, small())
    long = {"decode": "auto", "max_new_tokens": 600}
    for options in (long, {}, {"consistency": "recompute"}):
        chosen = begun_of(engine, SwapPolicy(), **options)
        assert len(chosen.drafting.of_models) == 1
        assert chosen.assembled.draft is None
    assert begun_of(engine, SwapPolicy(), decode="full").drafting is None
    short = begun_of(engine, SwapPolicy(), decode="auto", max_new_tokens=60).drafting
    assert not short.of_models  # reading the prompt would take longer than it saves
    assert begun_of(engine, SwapPolicy(), compressor="base").drafting.of_models == []


def test_another_tokenizer_is_refused_naming_both(store, model):
    other = copy.deepcopy(model.tokenizer.hf)
    other.add_tokens(["Rhine"])
    stranger = Model("stranger", copy.deepcopy(model.hf), HFTokenizer(other))
    with pytest.raises(ModelError, match=r"'stranger'.*another tokenizer than 'tiny-llama'"):
        Engine(store, draft_model=stranger)
    with pytest.raises(ModelError, match="nowhere"):
        Engine(store, draft_model="/nowhere/at/all")


def test_without_a_draft_model_its_name_is_refused(layered_engine):
    for name in ("model", "lookup+model"):
        for decode in ("auto", "verified", "full"):
            with pytest.raises(UsageError, match="--draft-model"):
                ask(layered_engine, decode=decode, compressor=name)
    with pytest.raises(UsageError):
        ask(layered_engine, decode="verified", compressor="base*model")


def test_the_two_models_run_one_at_a_time(store, small):
    draft_model = small()
    Engine(store, draft_model=draft_model)
    assert draft_model._forwarding is store.model._forwarding
