"""A request that is sent again with its key gets the answer of the first, and is not done again."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from kvpacket_store._server import ServerLimits, create_app

from kvpacket_store.errors import StoreFullError

pytestmark = pytest.mark.anyio


async def send(client, key, text="New.", document_id="x", **headers):
    body = {"documents": [{"id": document_id, "text": text}]}
    return await client.post("/ingest", json=body, headers={"Idempotency-Key": key, **headers})


async def test_the_answer_is_the_first_ones_and_nothing_is_done(client, store):
    first = await send(client, "k")
    store.delete("x")
    again = await send(client, "k")
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    assert [document.id for document in store.list().documents] == ["a", "b", "c"]
    assert (await send(client, "other")).json()["documents"]["added"] == 1


async def test_a_job_is_made_once(client):
    first = await send(client, "k", Prefer="respond-async")
    again = await send(client, "k", Prefer="respond-async")
    assert first.status_code == again.status_code == 202
    assert first.headers["location"] == again.headers["location"]
    assert len((await client.get("/jobs")).json()["jobs"]) == 1


async def test_another_body_is_a_conflict(client, store):
    await send(client, "k")
    response = await send(client, "k", text="Other.")
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert store.show("x")["text"] == "New."


async def test_one_that_is_being_done_is_a_conflict_for_now(client, store, monkeypatch):
    reached, release, ingest = threading.Event(), threading.Event(), store.ingest

    def held(documents, **options):
        reached.set()
        assert release.wait(60)
        return ingest(documents, **options)

    monkeypatch.setattr(store, "ingest", held)
    first = asyncio.create_task(send(client, "k"))
    assert await asyncio.to_thread(reached.wait, 60)
    second = await send(client, "k")
    release.set()
    assert (second.status_code, second.headers["retry-after"]) == (409, "2")
    assert (await first).status_code == 200
    assert (await send(client, "k")).content == (await first).content


async def test_errors_are_not_kept(client, store, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store, "ingest", _full)
        assert (await send(client, "k")).status_code == 507
    assert (await send(client, "k")).status_code == 200


def _full(*_, **__):
    raise StoreFullError("the cap of 10 bytes is reached; delete documents")


async def test_another_server_knows_it_and_another_key_does_not(
    store, engine, new_client, new_keys
):
    answers = []
    for _ in range(2):
        app = create_app(store, engine=engine, keys=new_keys(ann="write n", bob="write n"))
        async with app.router.lifespan_context(app), new_client(app) as client:
            client.key("ann")
            answers.append(await send(client, "k"))
            client.key("bob")
            assert (await send(client, f"k{len(answers)}")).json()["documents"]["unchanged"] == 1
    assert answers[0].content == answers[1].content
    assert "idempotent-replayed" in answers[1].headers


async def test_after_a_day_it_is_forgotten(client, monkeypatch):
    await send(client, "k")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 24 * 3600 + 1)
    response = await send(client, "k", text="Other.")
    assert (response.status_code, response.json()["documents"]["updated"]) == (200, 1)


@pytest.mark.parametrize("limits", [ServerLimits(kept_answers=2)])
async def test_the_oldest_answers_give_way(client, store):
    for key in ("1", "2", "3"):
        await send(client, key)
    assert "idempotent-replayed" not in (await send(client, "1")).headers
    assert "idempotent-replayed" in (await send(client, "3")).headers
    assert len([*store.packets.iter_values("default", "idempotent answers")]) == 2


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_that_is_none_is_422(client, key):
    assert (await send(client, key)).status_code == 422
