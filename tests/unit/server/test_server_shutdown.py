"""A server that is told to end: who runs may finish, who waits is told, nobody new comes in."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from kvpacket_store._server import ServerLimits, create_app
from kvpacket_store._server.graceful import new_server

LONG = {"query": "q", "documents": ["a"], "max_new_tokens": 6, "ignore_eos": True}


@contextmanager
def running(store, engine, limits):
    """Yield a server in a thread, its app and where it is."""
    app = create_app(store, engine=engine, limits=limits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = new_server(app, limits)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield server, app, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def clients():
    with ThreadPoolExecutor(4) as pool:
        yield lambda url, **fields: pool.submit(
            httpx.post, f"{url}/generate", json={**LONG, **fields}, timeout=60
        )


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_who_runs_finishes_and_who_waits_is_told_to_come_back(store, engine, gate):
    with clients() as ask, running(store, engine, ServerLimits(running_generations=1)) as served:
        server, app, url = served
        first = ask(url)
        asyncio.run(gate.reach_step(2))
        waiting = [ask(url, stream=stream) for stream in (False, True)]
        until(lambda: app.state.services.generations.num_waiting == 2)
        server.should_exit = True
        for told in waiting:
            response = told.result(60)
            assert response.status_code == 503
            assert response.json()["type"] == "urn:kvpacket-store:problem:shutting-down"
            assert int(response.headers["retry-after"]) > 0
        assert not first.done()
        until(lambda: refuses(url))
        gate.open()
        assert first.result(60).status_code == 200
        assert first.result(60).json()["usage"]["completion_tokens"] == 6


def refuses(url):
    try:
        httpx.get(f"{url}/health")
    except httpx.ConnectError:
        return True
    return False


@pytest.mark.parametrize("stream", [False, True])
def test_who_runs_for_too_long_is_told_too(store, engine, gate, stream):
    limits = ServerLimits(shutdown_s=0)
    with clients() as ask, running(store, engine, limits) as (server, app, url):
        asked = ask(url, stream=stream, max_new_tokens=500)
        asyncio.run(gate.reach_step(6))
        [request] = app.state.services.generations._running._arrivals._gives
        server.should_exit = True
        assert request.cancel.wait(60)
        gate.open()
        response = asked.result(60)
    if stream:
        assert response.text.rstrip().split("\n")[-2] == "event: error"
        assert '"status": 503' in response.text
    else:
        assert response.status_code == 503
    assert gate.num_steps == 6


@pytest.mark.anyio
async def test_it_is_not_ready_any_more_and_takes_nothing(client):
    client.app.state.services.begin_shutdown()
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["the server is shutting down"])
    assert (await client.get("/health")).status_code == 200
    for response in (
        await client.generate(documents=["a"]),
        await client.generate(documents=["a"], stream=True),
        await client.ingest({"id": "x", "text": "t"}),
    ):
        assert response.status_code == 503
        assert response.json()["type"] == "urn:kvpacket-store:problem:shutting-down"
        assert int(response.headers["retry-after"]) > 0


@pytest.mark.anyio
async def test_an_end_while_the_model_loads_takes_nothing_either(
    store, engine, new_client, monkeypatch
):
    go = threading.Event()
    monkeypatch.setattr(
        "kvpacket_store._server.wiring._warm_engine", lambda *_: go.wait(60) and engine
    )
    app = create_app(store)
    async with app.router.lifespan_context(app), new_client(app) as client:
        app.state.services.begin_shutdown()
        before = await client.generate(documents=["a"])
        go.set()
        await asyncio.wait_for(app.state.services.loaded.wait(), 60)
        after = await client.generate(documents=["a"])
    for response in (before, after):
        assert response.json()["type"] == "urn:kvpacket-store:problem:shutting-down"
