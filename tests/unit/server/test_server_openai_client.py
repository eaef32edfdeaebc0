"""The official ``openai`` client against a real server on loopback."""

from __future__ import annotations

import threading

import openai
import pytest
from kvpacket_store._server import create_app

ASKED = {"model": "tiny-llama", "temperature": 0, "max_tokens": 12}
MESSAGES = [{"role": "user", "content": "What was lit?"}]
OURS = {"extra_body": {"documents": ["a", "b"]}}


@pytest.fixture
def url(store, engine, running):
    with running(create_app(store, engine=engine)) as (_, url):
        yield url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_a_completion_streamed_and_not(client, engine):
    expected = engine.generate("What was lit?", ["a", "b"], max_new_tokens=12)
    whole = client.chat.completions.create(messages=MESSAGES, **ASKED, **OURS)
    assert whole.choices[0].message.content == expected.text
    assert whole.choices[0].finish_reason == expected.decode.finish_reason
    assert whole.usage.prompt_tokens_details.cached_tokens == expected.usage.cached_tokens
    stream = client.chat.completions.create(
        messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **ASKED, **OURS
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == expected.text
    assert chunks[-1].usage.completion_tokens == expected.usage.completion_tokens


def test_logprobs_models_and_embeddings(client, store):
    found = client.chat.completions.create(
        messages=MESSAGES, logprobs=True, top_logprobs=2, **ASKED, **OURS
    )
    content = found.choices[0].logprobs.content
    assert len(content) == found.usage.completion_tokens
    assert all(one.top_logprobs[0].token == one.token for one in content)
    assert [one.id for one in client.models.list()] == [store.meta.model]
    assert client.models.retrieve(store.meta.model).id == store.meta.model
    embedded = client.embeddings.create(model="any", input=["rope"])  # asks for base64 by itself
    assert len(embedded.data[0].embedding) == store.embedder.dimension


def test_errors_have_the_clients_classes(client):
    def ask(**fields):
        client.chat.completions.create(**{"messages": MESSAGES, **ASKED, **fields})

    with pytest.raises(openai.NotFoundError, match="nobody"):
        ask(extra_body={"documents": ["nobody"]})
    with pytest.raises(openai.NotFoundError, match="there is no other"):
        ask(model="another")
    with pytest.raises(openai.UnprocessableEntityError, match="n is not supported"):
        ask(n=3)


def test_closing_a_stream_stops_the_decoding(client, engine, gate, monkeypatch):
    events, begin = [], engine.begin

    def spied(query, options, timings, cancel, policy):
        events.append(cancel)
        return begin(query, options, timings, cancel, policy)

    monkeypatch.setattr(engine, "begin", spied)
    opener = threading.Thread(target=lambda: [gate.let_a_step_through() for _ in range(6)])
    opener.start()
    asked = {**ASKED, "max_tokens": 200}
    stream = client.chat.completions.create(messages=MESSAGES, stream=True, **asked, **OURS)
    next(iter(stream))
    stream.close()
    opener.join()
    assert events[0].wait(60)
    gate.open()
