"""Many documents are a job: kept, filed one after the other, and taken up again after an end."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from kvpacket_store._server import ServerLimits, create_app

from kvpacket_store.errors import StoreFullError

pytestmark = pytest.mark.anyio
ASYNC = {"Prefer": "respond-async"}


def numbered(count):
    return [{"id": f"d{i:03}", "text": f"Text number {i}."} for i in range(count)]


async def begin(client, documents, **fields):
    body = {"documents": documents, **fields}
    response = await client.post("/ingest", json=body, headers=ASYNC)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/jobs/{response.json()['id']}"
    return response.json()["id"]


async def finished(client, job_id, query=""):
    async with asyncio.timeout(60):
        while True:
            job = (await client.get(f"/jobs/{job_id}{query}")).json()
            if job["state"] not in {"queued", "running"}:
                return job
            await asyncio.sleep(0.01)


@pytest.fixture
def hold(store, monkeypatch):
    """Documents of jobs are filed when this is set; ``reached`` says that one is at it."""
    hold, ingest = threading.Event(), store.ingest
    hold.reached = threading.Event()

    def held(documents, **options):
        hold.reached.set()
        assert hold.wait(60)
        return ingest(documents, **options)

    monkeypatch.setattr(store, "ingest", held)
    yield hold
    hold.set()


async def test_more_than_a_few_documents_are_a_job(client, store):
    response = await client.ingest(*numbered(17))
    assert response.status_code == 202
    job = await finished(client, response.json()["id"])
    assert job["state"] == "done"
    assert job["documents"] == {"added": 17, "updated": 0, "unchanged": 0, "failed": 0}
    assert job["progress"] == {"done": 17, "total": 17}
    assert job["tokens"] > 0
    assert job["ratio"] == job["raw_bytes"] / job["stored_bytes"]
    assert store.show("d016")["text"] == "Text number 16."


async def test_one_documents_error_does_not_stop_the_others(client):
    documents = [{"id": "i" * 2000, "text": "t"}, *numbered(40), {"id": "d000", "text": "again"}]
    job = await finished(client, await begin(client, documents))
    assert (job["documents"]["added"], job["documents"]["failed"]) == (40, 2)
    assert [error["id"] for error in job["errors"]] == ["i" * 2000, "d000"]
    assert "earlier document" in job["errors"][1]["error"]


async def test_jobs_are_listed_page_by_page(client):
    ids = [await begin(client, numbered(1)) for _ in range(3)]
    for job_id in ids:
        await finished(client, job_id)
    listed = {job["id"] for job in (await client.get("/jobs")).json()["jobs"]}
    assert listed == set(ids)
    page = (await client.get("/jobs?limit=2")).json()
    rest = (await client.get("/jobs", params={"after": page["next"]})).json()
    assert [job["id"] for job in page["jobs"] + rest["jobs"]] == sorted(ids)
    assert rest["next"] is None


async def test_a_job_of_another_namespace_is_absent(client):
    job_id = await begin(client, numbered(1), namespace="n")
    assert (await finished(client, job_id, "?namespace=n"))["state"] == "done"
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        foreign = await client.request(method, f"/jobs/{job_id}{path}")
        absent = await client.request(method, f"/jobs/{job_id[:-1]}x{path}")
        assert foreign.status_code == absent.status_code == 404
        told = [one.json()["detail"].replace(job_id, "") for one in (foreign, absent)]
        assert told[0] == told[1].replace(f"{job_id[:-1]}x", "")
    assert (await client.get("/jobs")).json()["jobs"] == []


async def test_a_waiting_job_is_cancelled_and_a_finished_one_forgotten(client, store, hold):
    running = await begin(client, numbered(2))
    waiting = await begin(client, [{"id": "w", "text": "Waits."}])
    assert (await client.delete(f"/jobs/{waiting}")).json()["state"] == "cancelled"
    hold.set()
    assert (await finished(client, running))["state"] == "done"
    assert (await client.get(f"/jobs/{waiting}")).json()["documents"]["added"] == 0
    assert (await client.get("/documents/w")).status_code == 404
    await client.delete(f"/jobs/{waiting}")
    assert (await client.get(f"/jobs/{waiting}")).status_code == 404
    metrics = (await client.get("/metrics")).text
    assert 'kvpacket_jobs_total{state="cancelled"} 1.0' in metrics
    assert 'kvpacket_jobs_total{state="done"} 1.0' in metrics


async def test_what_is_filed_before_a_job_is_cancelled_stays(client, store, monkeypatch):
    job_ids, ingest = [], store.ingest

    def cancelling(documents, **options):
        def items():
            for number, document in enumerate(documents):
                if number == 3:
                    client.app.state.services.jobs.get(job_ids[0], "default").cancelled.set()
                yield document

        return ingest(items(), **options)

    monkeypatch.setattr(store, "ingest", cancelling)
    job_ids.append(await begin(client, numbered(40)))
    job = await finished(client, job_ids[0])
    assert (job["state"], job["documents"]["added"]) == ("cancelled", 4)
    assert job["progress"]["done"] == 4
    assert store.show("d003")


async def test_an_error_of_the_store_ends_the_job_with_a_problem(client, store, monkeypatch):
    def full(*_, **__):
        raise StoreFullError("the cap of 10 bytes is reached; delete documents")

    monkeypatch.setattr(store, "ingest", full)
    job = await finished(client, await begin(client, numbered(2)))
    assert job["state"] == "failed"
    assert job["problem"]["status"] == 507


async def test_events_follow_a_job_to_its_end(client):
    job_id = await begin(client, numbered(40))
    response = await client.get(f"/jobs/{job_id}/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [
        json.loads(block.removeprefix("data: ")) for block in response.text.split("\n\n")[:-1]
    ]
    assert events[-1]["state"] == "done"
    done = [event["progress"]["done"] for event in events]
    assert done == sorted(done)
    assert events[-1] == (await client.get(f"/jobs/{job_id}")).json()


@pytest.mark.parametrize("limits", [ServerLimits(kept_jobs=2)])
async def test_as_many_jobs_are_kept_as_may_be(client, hold):
    jobs = [await begin(client, numbered(1)) for _ in range(2)]
    refused = await client.post("/ingest", json={"documents": numbered(1)}, headers=ASYNC)
    assert refused.status_code == 429
    assert "Retry-After" in refused.headers
    hold.set()
    for job_id in jobs:
        await finished(client, job_id)
    jobs.append(await begin(client, numbered(1)))
    await finished(client, jobs[2])
    kept = {job["id"] for job in (await client.get("/jobs")).json()["jobs"]}
    assert len(kept) == 2
    assert jobs[2] in kept


@pytest.mark.parametrize("limits", [ServerLimits(kept_job_bytes=100)])
async def test_documents_beyond_the_bytes_that_may_wait_are_429(client):
    body = {"documents": [{"id": "x", "text": "t" * 100}]}
    assert (await client.post("/ingest", json=body, headers=ASYNC)).status_code == 429


@pytest.mark.parametrize("when", ["running", "queued"])
async def test_the_next_server_goes_on_with_a_job(store, engine, new_client, monkeypatch, when):
    count, ingest = 40, store.ingest
    first = create_app(store, engine=engine)

    reached, release = threading.Event(), threading.Event()

    def ending(documents, **options):
        def items():
            for number, document in enumerate(documents):
                if number == 3:
                    reached.set()
                    assert release.wait(60)
                yield document

        return ingest(items(), **options)

    async with first.router.lifespan_context(first), new_client(first) as client:
        await first.state.services.loaded.wait()
        monkeypatch.setattr(store, "ingest", ending)
        ids = [await begin(client, numbered(count))]
        if when == "queued":
            ids.append(await begin(client, [{"id": "w", "text": "Waited."}]))
        assert await asyncio.to_thread(reached.wait, 60)
        first.state.services.jobs.stop()
        release.set()
    monkeypatch.setattr(store, "ingest", ingest)
    assert len(store.list().documents) == 3 + 4
    second = create_app(store, engine=engine)
    async with second.router.lifespan_context(second), new_client(second) as client:
        await second.state.services.loaded.wait()
        jobs = [await finished(client, job_id) for job_id in ids]
        assert jobs[0]["documents"]["added"] == count
        assert [job["state"] for job in jobs] == ["done"] * len(ids)
        assert (await client.get("/jobs")).json()["next"] is None
    assert [*store.packets.iter_values("default", "ingest job documents")] == []


async def test_a_killed_server_leaves_a_job_that_is_done_again_from_its_last_row(
    store, engine, new_client
):
    """What the killed one has filed of it is found unchanged."""
    from kvpacket_store._server.job import new_job
    from kvpacket_store._server.job_shelf import JobShelf, chunks_of

    from kvpacket_store.types import Document

    documents = [Document(**one) for one in numbered(3)]
    store.ingest(documents[:1])
    job, shelf = new_job("default", 3, 1), JobShelf(store.packets)
    job.state = "running"
    shelf.file(job, chunks_of(documents))
    young, old = new_job("default", 3, 1), new_job("default", 3, 1)
    old.id = "00" + old.id[2:]
    for orphan in (young, old):
        shelf.file(orphan, chunks_of(documents))
        store.packets.delete_values("default", "ingest jobs", [orphan.id])
    app = create_app(store, engine=engine)
    async with app.router.lifespan_context(app), new_client(app) as client:
        await app.state.services.loaded.wait()
        counts = (await finished(client, job.id))["documents"]
    assert (counts["unchanged"], counts["added"]) == (1, 2)
    left = [key for key, _ in store.packets.iter_values("default", "ingest job documents")]
    assert left == [f"{young.id}/000000"]  # another server may be about to take it
