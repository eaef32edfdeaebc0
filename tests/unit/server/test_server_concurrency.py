"""Many clients at once get what each would get alone, and nobody blocks the event loop."""

from __future__ import annotations

import asyncio

import pytest
from kvpacket_store._server import ServerLimits

pytestmark = pytest.mark.anyio
ASKED = [
    {"query": "What was lit?", "documents": ["a"]},
    {"query": "Who left?", "documents": ["b", "a"]},
    {"query": "What was sold?", "top_k": 2},
    {"query": "And when?", "documents": ["c"], "temperature": 1.0, "seed": 7},
]
LENGTH = {"max_new_tokens": 8, "ignore_eos": True}


@pytest.mark.parametrize(
    "limits",
    [
        ServerLimits(running_generations=1),
        ServerLimits(),
        ServerLimits(running_kv_bytes=300_000),  # about two
    ],
    ids=["one", "eight", "short of memory"],
)
async def test_eight_at_once_equal_one_after_the_other(client):
    alone = [await client.generate(**one, **LENGTH) for one in ASKED]
    together = await asyncio.gather(
        *(client.generate(**one, **LENGTH) for one in ASKED),
        *(client.events(**one, **LENGTH) for one in ASKED),
    )
    plain, streamed = together[:4], [events[-1][1] for events in together[4:]]
    for first, second, third in zip(alone, plain, streamed, strict=True):
        assert first.json()["token_ids"] == second.json()["token_ids"] == third["token_ids"]
        assert first.json()["usage"] == second.json()["usage"] == third["usage"]


@pytest.mark.parametrize("limits", [ServerLimits(running_generations=1, waiting_generations=1)])
@pytest.mark.parametrize("stream", [False, True])
async def test_one_too_many_is_told_when_to_come_back(client, gate, stream):
    running = asyncio.create_task(client.generate(documents=["a"], **LENGTH))
    await gate.reach_step(1)
    waiting = asyncio.create_task(client.generate(documents=["a"], **LENGTH))
    while not client.app.state.services.generations.num_waiting:
        await asyncio.sleep(0)
    refused = await client.generate(documents=["a"], stream=stream)
    assert refused.status_code == 429
    assert refused.json()["type"] == "urn:kvpacket-store:problem:busy"
    assert int(refused.headers["retry-after"]) > 0
    gate.open()
    assert [(await task).status_code for task in (running, waiting)] == [200, 200]


async def test_health_and_ingest_go_on_while_an_answer_is_decoded(client, gate):
    running = asyncio.create_task(client.generate(documents=["a"], **LENGTH))
    await gate.reach_step(1)
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).status_code == 200
    assert (await client.ingest({"id": "x", "text": "Meanwhile."})).status_code == 200
    assert not running.done()
    gate.open()
    assert (await running).status_code == 200
