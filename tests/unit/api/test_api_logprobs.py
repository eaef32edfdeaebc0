"""Log probabilities of an answer are the target's, however it was decoded."""

import pytest
import torch
from verified_requests import IDS, QUESTION, ask

from kvpacket_store.errors import UsageError


def reference(engine, answer):
    """Return them from one forward a token over the same packets, row by row."""
    model = engine.store.model
    cache, _ = engine.assemble(QUESTION, documents=IDS)
    rows, found = engine.prompt.question_ids(QUESTION), []
    for token_id in answer:
        logprobs = torch.log_softmax(model.forward(rows, cache)[-1].double(), dim=-1)
        found.append((float(logprobs[token_id]), torch.topk(logprobs, 4).values.tolist()))
        rows = (token_id,)
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_they_are_those_of_plain_forwards(layered_engine, temperature):
    asked = {"temperature": temperature, "seed": 3, "logprobs": 4}
    plain = ask(layered_engine, decode="full", **asked)
    assert [one.token_id for one in plain.logprobs] == plain.token_ids
    expected = reference(layered_engine, plain.token_ids)
    for one, (logprob, top) in zip(plain.logprobs, expected, strict=True):
        assert one.logprob == pytest.approx(logprob, abs=1e-4)
        assert [other.logprob for other in one.top] == pytest.approx(top, abs=1e-4)
    for compressor in ("base", "lookup+snapkv:0.5"):
        drafted = ask(layered_engine, decode="verified", compressor=compressor, **asked)
        assert drafted.to_dict()["logprobs"] == plain.to_dict()["logprobs"]


def test_an_answer_that_a_stop_string_ends_has_them_for_its_own_tokens(layered_engine):
    whole = ask(layered_engine)
    stop = whole.text[len(whole.text) // 2 :][:3]
    cut = ask(layered_engine, stop=stop, logprobs=0)
    assert [one.token_id for one in cut.logprobs] == cut.token_ids
    assert all(one.top == [] for one in cut.logprobs)


def test_nobody_gets_them_unasked(layered_engine):
    assert ask(layered_engine).logprobs is None
    for wrong in (-1, 21, "3"):
        with pytest.raises(UsageError, match="logprobs"):
            ask(layered_engine, logprobs=wrong)
