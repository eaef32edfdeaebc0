"""SmolLM2-135M-Instruct, from its package, over Wikipedia paragraphs."""

import time

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvpacket_store.api import Engine, Store
from kvpacket_store.models.presets import preset_folder

pytestmark = pytest.mark.e2e
ARTICLE = [f"civil-disobedience-{i}" for i in range(1, 6)]
QUESTION = "Who wrote the political poem The Mask of Anarchy?"


def test_a_question_finds_its_paragraph_and_its_answer(smollm2_engine):
    answer = smollm2_engine.generate(QUESTION, top_k=3, max_new_tokens=24)
    assert answer.documents[0].id == "civil-disobedience-1"
    assert "Shelley" in answer.text
    assert answer.usage.cached_tokens > 0.7 * answer.usage.prompt_tokens
    assert answer.timings_ms.first_token < answer.timings_ms.total


def test_recompute_gives_what_transformers_generate_gives(smollm2_engine, smollm2_store):
    """consistency="recompute" is what the user would have got without packets.

    Compared in fp32 on both sides; near ties of the last bits are allowed to part company, so the
    tokens before the first one must be many.
    """
    ours = smollm2_engine.generate(
        QUESTION, documents=ARTICLE[:2], consistency="recompute", max_new_tokens=16, ignore_eos=True
    )
    _, ids = smollm2_engine.assemble(QUESTION, documents=ARTICLE[:2])
    reference = AutoModelForCausalLM.from_pretrained(
        preset_folder("smollm2"), dtype=smollm2_store.model.dtype
    )
    with torch.inference_mode():
        out = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=16,
            min_new_tokens=16,
            do_sample=False,
        )
    theirs = out[0, ids.shape[1] :].tolist()
    same = next((i for i in range(16) if ours.token_ids[i] != theirs[i]), 16)
    assert same >= 6


def test_a_fresh_process_state_gives_the_same_tokens(smollm2_engine, smollm2_store):
    first = smollm2_engine.generate(QUESTION, documents=ARTICLE, max_new_tokens=16)
    with Store.open(smollm2_store.path, model=smollm2_store.model) as again:
        second = Engine(again).generate(QUESTION, documents=ARTICLE, max_new_tokens=16)
    assert second.token_ids == first.token_ids


def test_packets_are_prefilled_to_the_same_bits_again(smollm2_store):
    packet = smollm2_store.packet("civil-disobedience-3")
    body = smollm2_store.prefiller.segment(packet.token_ids)
    assert (packet.k == body.k).all()
    assert (packet.v == body.v).all()


def test_the_second_load_needs_no_conversion(smollm2_store):
    """The target is 5 s; a conversion takes ten times that. Not timed: the files are looked at."""
    folder = preset_folder("smollm2")
    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    started = time.time_ns()
    with Store.open(smollm2_store.path) as store:
        assert store.model.fingerprint == smollm2_store.model.fingerprint
    after = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    assert after == before
    assert all(stamp < started for stamp in after.values())


def test_unicode_arrives_whole(smollm2_engine):
    pieces = [
        p.text
        for p in smollm2_engine.stream(
            "Repeat: 日本語 🌍🚀 Ελληνικά", documents=[], max_new_tokens=24, ignore_eos=True
        )
    ]
    assert not any("\ufffd" in piece for piece in pieces[:-1])
