"""Up at once, ready when the model is there, honest when it is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from kvpacket_store._server import create_app

import kvpacket_store as kv
from kvpacket_store.api.exactness import exactness_of
from kvpacket_store.errors import ModelMismatchError, UsageError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def loading(store, new_client, monkeypatch):
    """A client whose app loads through ``load``, and what to set for that to go on."""
    go = threading.Event()

    class Loading:
        outcome = None

    real = kv.Engine

    def engine(of_store, audit):
        assert go.wait(60)
        if Loading.outcome is not None:
            raise Loading.outcome
        return real(of_store, audit=audit)

    monkeypatch.setattr("kvpacket_store.api.Engine", engine)
    app = create_app(store)
    async with app.router.lifespan_context(app), new_client(app) as client:
        yield client, go, Loading
        go.set()


async def until_loaded(client, go):
    go.set()
    await asyncio.wait_for(client.app.state.services.loaded.wait(), 60)


async def test_it_is_up_before_it_is_ready(loading):
    client, go, _ = loading
    assert (await client.get("/health")).json() == {"status": "ok"}
    early = await client.get("/ready")
    assert early.status_code == 503
    assert early.json()["ready"] is False
    assert early.json()["reasons"] == ["the model is still loading; try again in a few seconds"]
    assert int(early.headers["retry-after"]) > 0
    await until_loaded(client, go)
    assert (await client.get("/ready")).json() == {"ready": True, "reasons": []}
    assert (await client.generate(documents=["a"], max_new_tokens=1)).status_code == 200


async def test_requests_before_that_are_503(loading):
    client, _, _ = loading
    for response in (
        await client.generate(documents=["a"]),
        await client.generate(documents=["a"], stream=True),
        await client.ingest({"id": "x", "text": "t"}),
    ):
        assert response.status_code == 503
        assert response.headers["content-type"] == "application/problem+json"
        assert int(response.headers["retry-after"]) > 0


async def test_metrics_count_before_that_and_tell_of_the_engine_after(loading):
    client, go, _ = loading
    await client.generate(documents=["a"])
    early = (await client.get("/metrics")).text
    assert 'kvpacket_requests_total{outcome="model"} 1.0' in early
    assert "kvpacket_requests_running" not in early
    await until_loaded(client, go)
    assert "kvpacket_requests_running 0.0" in (await client.get("/metrics")).text


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (ModelMismatchError("its weights changed"), "its weights changed"),
        (MemoryError("0x7f"), "the server's log says why"),
    ],
)
async def test_a_model_that_cannot_be_loaded_is_said(loading, outcome, told):
    client, go, plan = loading
    plan.outcome = outcome
    await until_loaded(client, go)
    assert (await client.get("/health")).status_code == 200
    ready = await client.get("/ready")
    assert ready.status_code == 503
    assert told in ready.json()["reasons"][0]
    assert told in (await client.generate(documents=["a"])).json()["detail"]


async def test_a_closed_store_is_not_ready(client, store):
    assert (await client.get("/ready")).status_code == 200
    store.close()
    response = await client.get("/ready")
    assert response.status_code == 503
    assert "closed" in response.json()["detail"]


def test_listening_waits_for_no_torch():
    check = "import sys, kvpacket_store._server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


async def test_version_is_the_packages(client):
    version = (await client.get("/version")).json()
    assert (version["name"], version["version"]) == ("kvpacket-store", kv.__version__)


async def test_version_says_how_exact_this_machine_is_once_it_is_measured(loading, model):
    client, go, _ = loading
    assert (await client.get("/version")).json()["exactness"] is None
    await until_loaded(client, go)
    exactness = (await client.get("/version")).json()["exactness"]
    assert exactness == exactness_of(model).to_dict()
    assert exactness["rows_alike"]
    assert exactness["guard_logits"] == 4 * exactness["largest_difference"]


async def test_the_description_has_every_route(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    process = {"/health", "/ready", "/version", "/metrics", "/stats", "/ui"}
    documents = {"/documents", "/documents/{document_id}", "/lookup", "/prefetch", "/ingest"}
    jobs = {"/jobs", "/jobs/{job_id}", "/jobs/{job_id}/events"}
    models = {"/v1/models", "/v1/models/{name}", "/v1/chat/completions", "/v1/embeddings"}
    assert set(paths) == process | documents | jobs | models | {"/generate"}


async def test_an_engine_of_another_store_is_refused(store, engine, tmp_path, stock_folder):
    with kv.Store.open(stock_folder) as other, pytest.raises(UsageError, match="another store"):
        create_app(other, engine=engine)


async def test_jobs_that_cannot_be_taken_up_keep_nobody_from_asking(
    store, engine, new_client, monkeypatch, caplog
):
    async def broken(_jobs):
        raise RuntimeError("damaged")

    monkeypatch.setattr("kvpacket_store._server.jobs.Jobs.resume", broken)
    app = create_app(store, engine=engine)
    async with app.router.lifespan_context(app), new_client(app) as client:
        await asyncio.wait_for(app.state.services.loaded.wait(), 60)
        assert (await client.get("/ready")).status_code == 200
    assert "jobs that are kept" in caplog.text
    assert "the model cannot" not in caplog.text
