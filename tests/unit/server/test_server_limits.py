"""Bodies, questions, answers and their time have limits; one key cannot take all places."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kvpacket_store._server import ServerLimits

pytestmark = pytest.mark.anyio
LONG = {"documents": ["a"], "max_new_tokens": 100, "ignore_eos": True}


async def waiting(client, count):
    while client.app.state.services.generations.num_waiting < count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "limits",
    [ServerLimits(running_generations=1, waiting_generations=3, waiting_generations_of_key=1)],
)
async def test_one_key_cannot_fill_the_queue(client, gate, keys_of_two):
    client.key("ann")
    tasks = [asyncio.create_task(client.generate(**LONG))]
    await gate.reach_step(1)
    tasks.append(asyncio.create_task(client.generate(**LONG)))
    await waiting(client, 1)
    for stream in (False, True):
        refused = await client.generate(**LONG, stream=stream)
        assert refused.status_code == 429
        assert "of this key" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 0
    client.key("bob")
    tasks.append(asyncio.create_task(client.generate(**LONG)))
    await waiting(client, 2)
    gate.open()
    assert [(await task).status_code for task in tasks] == [200, 200, 200]


@pytest.fixture
def keys_of_two(client):
    return client


@pytest.fixture
def keys(new_keys, request):
    if "keys_of_two" not in request.fixturenames:
        return None
    return new_keys(ann="read default", bob="read default")


@pytest.mark.parametrize("limits", [ServerLimits(waiting_generations_of_key=0)])
async def test_without_keys_there_is_no_share(client, gate):
    tasks = [asyncio.create_task(client.generate(**LONG)) for _ in range(10)]
    await gate.reach_step(1)
    gate.open()
    assert {(await task).status_code for task in tasks} == {200}


@pytest.mark.parametrize("limits", [ServerLimits(max_new_tokens=5, question_bytes=20)])
async def test_longer_answers_and_questions_are_refused(client):
    assert (await client.generate("é" * 10, max_new_tokens=5)).status_code == 200
    for asked, told in (
        ({"max_new_tokens": 6}, "at most 5"),
        ({"max_new_tokens": 10**40}, "at most 5"),
        ({"max_new_tokens": 1, "query": "é" * 10 + "e"}, "at most 20"),
    ):
        for stream in (False, True):
            response = await client.generate(**{"query": "q", **asked}, stream=stream)
            assert response.status_code == 422
            assert told in response.json()["detail"]


@pytest.mark.parametrize("limits", [ServerLimits(max_new_tokens=5, question_bytes=20)])
async def test_so_they_are_on_openais_surface(client):
    def said(*texts):
        roles = ("system", "user", "assistant", "user")
        return [{"role": roles[i], "content": text} for i, text in enumerate(texts)]

    for status, fields in (
        (200, {"messages": said("s", "u", "a", "q"), "max_tokens": 5}),
        (422, {"messages": said("s", "u", "a", "q"), "max_tokens": 6}),
        (422, {"messages": said("s" * 10, "u", "a" * 5, "q" * 5), "max_tokens": 5}),
    ):
        response = await client.post("/v1/chat/completions", json={**fields, "documents": []})
        assert response.status_code == status, response.text
        assert status == 200 or "at most" in response.json()["error"]["message"]


@pytest.mark.parametrize("limits", [ServerLimits(waiting_embeddings=0)])
async def test_only_so_many_embed_at_once(client, store, monkeypatch):
    inside, go, embed = threading.Event(), threading.Event(), store.embedder.embed

    def held(texts):
        inside.set()
        assert go.wait(60)
        return embed(texts)

    monkeypatch.setattr(store.embedder, "embed", held)
    first = asyncio.create_task(client.post("/v1/embeddings", json={"input": "a"}))
    assert await asyncio.to_thread(inside.wait, 60)
    refused = await client.post("/v1/embeddings", json={"input": "b"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    go.set()
    assert (await first).status_code == 200


@pytest.fixture
def timed_out(client, monkeypatch):
    """An event: the server has ended a request for its time."""
    ended, running = threading.Event(), client.app.state.services.generations._running
    cancel = running.cancel

    def spied(request):
        cancel(request)
        ended.set()

    monkeypatch.setattr(running, "cancel", spied)
    return ended


@pytest.mark.parametrize("limits", [ServerLimits(request_timeout_s=1.0)])
async def test_an_answer_that_takes_too_long_is_504_with_what_there_is(client, gate, timed_out):
    asking = asyncio.create_task(client.generate(**LONG))
    for _ in range(6):
        gate.let_a_step_through()
    assert await asyncio.to_thread(timed_out.wait, 60)
    steps = gate.num_steps
    gate.open()
    response = await asking
    assert response.status_code == 504
    problem = response.json()
    assert problem["type"] == "urn:kvpacket-store:problem:timeout"
    assert problem["done"]["timings_ms"].keys() >= {"prefill", "first_token"}
    assert gate.num_steps == steps  # no step follows the one in which the time was over
    generations = client.app.state.services.generations
    assert (generations.num_running, generations.num_waiting) == (0, 0)
    whole = client.app.state.services.engine.generate("What was lit?", **LONG)
    assert whole.text.startswith(problem["done"]["text"])
    counts = (await client.get("/metrics")).text
    assert 'kvpacket_requests_total{outcome="timeout"} 1.0' in counts


@pytest.mark.parametrize("limits", [ServerLimits(request_timeout_s=1.0)])
async def test_a_stream_that_takes_too_long_ends_with_an_error(client, gate, timed_out):
    asking = asyncio.create_task(client.generate(**LONG, stream=True))
    for _ in range(8):
        gate.let_a_step_through()
    assert await asyncio.to_thread(timed_out.wait, 60)
    gate.open()
    response = await asking
    if response.status_code != 504:  # which it is where nothing was sent yet
        assert response.text.rstrip().split("\n")[-2] == "event: error"
    assert "urn:kvpacket-store:problem:timeout" in response.text
    assert "usage" not in response.text


@pytest.mark.parametrize("limits", [ServerLimits(running_generations=1, request_timeout_s=1.0)])
async def test_who_waits_for_too_long_is_told_as_well(client, gate):
    running = asyncio.create_task(client.generate(**LONG))
    await gate.reach_step(1)
    queued = await client.generate(**LONG)
    assert queued.status_code == 504
    assert queued.json()["done"]["text"] == ""
    gate.open()
    assert (await running).status_code == 504


@pytest.mark.parametrize(
    "limits", [{"request_timeout_s": 0.0}, {"request_timeout_s": float("nan")}, {"shutdown_s": -1}]
)
async def test_times_that_are_none_are_refused(limits):
    from kvpacket_store.errors import UsageError

    with pytest.raises(UsageError, match=next(iter(limits))):
        ServerLimits(**limits)
