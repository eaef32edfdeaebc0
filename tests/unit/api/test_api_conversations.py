"""Earlier turns and system prompts of a request: part of its prompt, and of no other's."""

import pytest
from verified_requests import IDS, ask

from kvpacket_store.api import Engine
from kvpacket_store.errors import UsageError

HISTORY = [("Where is Basel?", "On the Rhine."), ("And Prague?", "Not on it.")]
SYSTEM = "You are a pilot on the river."


def reference(engine, history, *, system_prompt=None, num_tokens=12):
    """Answer greedily over the same packets with plain forwards."""
    engine = Engine(engine.store, system_prompt=system_prompt) if system_prompt else engine
    model = engine.store.model
    cache, ids = engine.assemble("Where does the Rhine rise?", documents=IDS, history=history)
    asked = engine.prompt.question_ids("Where does the Rhine rise?", history=history)
    assert ids[0].tolist()[-len(asked) :] == list(asked)
    answer, rows = [], asked
    for _ in range(num_tokens):
        answer.append(int(model.forward(rows, cache)[-1].argmax()))
        rows = (answer[-1],)
    return answer


@pytest.mark.parametrize("options", [{}, {"system_prompt": SYSTEM}], ids=["engine's", "own"])
@pytest.mark.parametrize("history", [[], HISTORY], ids=["alone", "turns"])
def test_answers_are_those_of_the_whole_conversation(layered_engine, history, options):
    asked = {"history": history, **options, "max_new_tokens": 12}
    expected = reference(layered_engine, history, **options)
    assert ask(layered_engine, **asked).token_ids == expected
    for compressor in ("base", "base*snapkv:0.5"):
        drafted = ask(layered_engine, **asked, decode="verified", compressor=compressor)
        assert drafted.token_ids == expected


def test_each_request_of_a_batch_has_its_own(layered_engine):
    kinds = [
        {},
        {"history": HISTORY},
        {"system_prompt": SYSTEM},
        {"history": HISTORY[:1], "system_prompt": SYSTEM},
    ]
    alone = [ask(layered_engine, max_new_tokens=8, **kind).token_ids for kind in kinds]
    assert len(set(map(tuple, alone))) > 1
    requests = [
        {
            "question": "Where does the Rhine rise?",
            "documents": IDS,
            "max_new_tokens": 8,
            "ignore_eos": True,
            **kind,
        }
        for kind in kinds
    ]
    assert [a.token_ids for a in layered_engine.generate_many(requests)] == alone


def test_recompute_answers_the_whole_conversation_too(layered_engine):
    asked = {"history": HISTORY, "system_prompt": SYSTEM, "consistency": "recompute"}
    plain = ask(layered_engine, decode="full", **asked)
    assert ask(layered_engine, decode="verified", **asked).token_ids == plain.token_ids
    assert plain.token_ids != ask(layered_engine, decode="full", consistency="recompute").token_ids


def test_usage_counts_turns_as_run_and_a_system_prompt_once(layered_engine):
    first = ask(layered_engine, history=HISTORY, system_prompt=SYSTEM)
    again = ask(layered_engine, history=HISTORY, system_prompt=SYSTEM)
    short = ask(layered_engine, system_prompt=SYSTEM)
    prompt = Engine(layered_engine.store, system_prompt=SYSTEM).prompt
    preamble = len(prompt.preamble_ids)
    assert again.usage.cached_tokens - first.usage.cached_tokens == preamble
    turns = len(prompt.question_ids("?", history=HISTORY)) - len(prompt.question_ids("?"))
    assert again.usage.prompt_tokens - short.usage.prompt_tokens == turns
    assert again.usage.cached_tokens == short.usage.cached_tokens


def test_system_prompts_of_requests_leave_nothing_in_the_store(layered_engine):
    ask(layered_engine)
    before = layered_engine.store.stats().live_bytes
    for number in range(12):
        ask(layered_engine, system_prompt=f"Be pilot {number}.", max_new_tokens=1)
    assert layered_engine.store.stats().live_bytes == before
    assert len(layered_engine._assembler._loader._shared._passing) == 8


@pytest.mark.parametrize(
    "asked",
    [
        {"history": "What?"},
        {"history": [("What?",)]},
        {"history": [("", "That.")]},
        {"history": [("What?", None)]},
        {"history": 3},
        {"system_prompt": 3},
    ],
)
def test_what_are_no_turns_is_refused(layered_engine, asked):
    with pytest.raises(UsageError, match=r"history|system_prompt"):
        ask(layered_engine, **asked)
