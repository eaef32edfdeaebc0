"""OpenAI's surface in this process: shapes, usage, refusals, errors."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

pytestmark = pytest.mark.anyio
ASKED = {"documents": ["a", "b"], "max_tokens": 12, "temperature": 0}
QUESTION = {"role": "user", "content": "What was lit?"}
PATH = "/v1/chat/completions"


async def complete(client, messages=(QUESTION,), **fields):
    return await client.post(PATH, json={"messages": [*messages], **ASKED, **fields})


async def chunks_of(client, **fields):
    response = await complete(client, stream=True, **fields)
    assert response.status_code == 200, response.text
    data = [block.removeprefix("data: ") for block in response.text.split("\n\n")[:-1]]
    assert data.pop() == "[DONE]"
    return [json.loads(one) for one in data]


async def test_a_completion_is_the_engines_answer(client, engine, store):
    found = (await complete(client)).json()
    expected = engine.generate("What was lit?", ["a", "b"], max_new_tokens=12)
    choice = found["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert choice["finish_reason"] == expected.decode.finish_reason
    assert choice["logprobs"] is None
    assert (found["object"], found["model"]) == ("chat.completion", store.meta.model)
    usage, ours = found["usage"], expected.usage
    assert usage["prompt_tokens_details"]["cached_tokens"] == ours.cached_tokens > 0
    assert usage["total_tokens"] == ours.prompt_tokens + ours.completion_tokens
    assert [one["id"] for one in found["documents"]] == ["a", "b"]


async def test_chunks_make_up_the_completion(client):
    whole = (await complete(client)).json()
    role, *pieces, last = await chunks_of(client)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(one["choices"][0]["delta"]["content"] for one in pieces)
    assert text == whole["choices"][0]["message"]["content"]
    assert last["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert len({one["id"] for one in (role, *pieces, last)}) == 1
    assert not any("usage" in one for one in (role, *pieces, last))
    *before, usage = await chunks_of(client, stream_options={"include_usage": True})
    assert all(one["usage"] is None for one in before)
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


async def test_a_conversation_and_its_system_message_reach_the_engine(client, engine):
    messages = [
        {"role": "system", "content": "You keep the light."},
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": [{"type": "text", "text": "The keeper."}]},
        QUESTION,
    ]
    found = (await complete(client, messages)).json()
    expected = engine.generate(
        "What was lit?",
        ["a", "b"],
        max_new_tokens=12,
        history=[("Who are you?", "The keeper.")],
        system_prompt="You keep the light.",
    )
    assert found["choices"][0]["message"]["content"] == expected.text
    assert found["usage"]["prompt_tokens"] == expected.usage.prompt_tokens
    native = await client.generate(
        "What was lit?",
        documents=["a", "b"],
        max_new_tokens=12,
        history=[{"question": "Who are you?", "answer": "The keeper."}],
        system_prompt="You keep the light.",
    )
    assert native.json()["token_ids"] == expected.token_ids


@pytest.mark.parametrize("decode", ["full", "verified"])
async def test_logprobs_are_the_models_own(client, engine, decode):
    expected = engine.generate(
        "What was lit?", ["a", "b"], max_new_tokens=12, logprobs=3, decode=decode
    )
    native = await client.generate(
        "What was lit?", documents=["a", "b"], max_new_tokens=12, logprobs=3, decode=decode
    )
    assert native.json()["logprobs"] == expected.to_dict()["logprobs"]
    found = (await complete(client, logprobs=True, top_logprobs=3)).json()
    content = found["choices"][0]["logprobs"]["content"]
    assert [one["logprob"] for one in content] == [one.logprob for one in expected.logprobs]
    assert [len(one["top_logprobs"]) for one in content] == [3] * len(content)
    assert all(one["top_logprobs"][0]["logprob"] == one["logprob"] for one in content)  # greedy
    streamed = (await chunks_of(client, logprobs=True, top_logprobs=3))[-1]
    assert streamed["choices"][0]["logprobs"]["content"] == content


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "user": "me", "store": False, "metadata": {"a": "b"}, "tools": []},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "response_format": {"type": "text"}},
        {"max_tokens": None, "max_completion_tokens": 12, "seed": 3, "top_p": 0.9},
    ],
)
async def test_fields_that_ask_for_nothing_else_are_left(client, fields):
    response = await complete(client, **fields)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"n": 2}, 422, "n is not supported"),
        ({"tools": [{"type": "function"}]}, 422, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, 422, "response_format is not supported"),
        ({"presence_penalty": 0.5}, 422, "presence_penalty is not supported"),
        ({"unheard_of": 1}, 422, "Extra inputs"),
        ({"temperature": "hot"}, 422, "number"),
        ({"stop": ["1", "2", "3", "4", "5"]}, 422, "at most 4"),
        ({"messages": []}, 422, "at least 1"),
        ({"messages": [{"role": "system", "content": "x"}]}, 422, "in turn"),
        ({"messages": [QUESTION, QUESTION]}, 422, "in turn"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 422, "user"),
        ({"messages": [{"role": "user", "content": " "}]}, 422, "empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 422, "text"),
        ({"documents": ["nobody"]}, 404, "nobody"),
        ({"documents": [{"id": "nobody"}]}, 404, "nobody"),
        ({"model": "another"}, 404, "there is no other"),
    ],
)
async def test_what_cannot_be_done_is_an_error_object(client, fields, status, words):
    for stream in (False, True):
        response = await complete(client, **{"stream": stream, **fields})
        assert response.status_code == status
        error = response.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert words in error["message"]
        assert error["type"] == "invalid_request_error"


async def test_an_error_amid_a_stream_is_its_last_event(client, engine, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("kvpacket_store.api.running.AnswerPieces.finish", fail)
    response = await complete(client, stream=True)
    last = json.loads(response.text.split("\n\n")[-2].removeprefix("data: "))
    assert last["error"]["type"] == "server_error"
    assert "[DONE]" not in response.text


@pytest.mark.parametrize("form", ["id", "text"])
async def test_documents_are_named_or_given(client, engine, form):
    """A text that is stored is found by its content: no token of it is run."""
    text = engine.store.packets.document_text("default", "a")
    item = {"id": "a"} if form == "id" else {"text": text}
    expected = engine.generate("What was lit?", ["a"], max_new_tokens=12)
    found = (await complete(client, documents=[item])).json()
    assert found["choices"][0]["message"]["content"] == expected.text
    cached = found["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == expected.usage.cached_tokens
    native = await client.generate("What was lit?", documents=[item], max_new_tokens=12)
    assert native.json()["token_ids"] == expected.token_ids


async def test_errors_of_other_routes_stay_problems(client):
    response = await client.generate(documents=["nobody"])
    assert response.headers["content-type"] == "application/problem+json"
    for path in ("/v1/nothing", "/v1/models/nobody"):
        assert "error" in (await client.get(path)).json()


async def test_the_model_is_listed(client, store):
    listed = (await client.get("/v1/models")).json()
    assert [one["id"] for one in listed["data"]] == [store.meta.model]
    assert (await client.get(f"/v1/models/{store.meta.model}")).json() == listed["data"][0]


async def test_embeddings_are_those_of_retrieval(client, store):
    texts = ["a goat", "rope"]
    found = (await client.post("/v1/embeddings", json={"input": texts})).json()
    expected = store.embedder.embed(texts)
    np.testing.assert_array_equal([one["embedding"] for one in found["data"]], expected)
    asked = {"input": texts[0], "encoding_format": "base64", "dimensions": 16}
    coded = (await client.post("/v1/embeddings", json=asked)).json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(coded), "<f4"), expected[0])
    for wrong in ({"input": []}, {"input": [[1, 2]]}, {"input": "x", "dimensions": 3}):
        assert (await client.post("/v1/embeddings", json=wrong)).status_code == 422
