"""Behind a real server on loopback: real connections, real disconnects, a real shutdown."""

from __future__ import annotations

import asyncio
import socket
import threading

import httpx
import pytest
from kvpacket_store._server import create_app, serve

from kvpacket_store.errors import NotFoundError, UsageError

LONG = {"query": "q", "documents": ["a"], "max_new_tokens": 200, "ignore_eos": True}


@pytest.fixture
def app(store, engine):
    return create_app(store, engine=engine)


@pytest.fixture
def cancelled(engine, monkeypatch):
    """The cancel events that the engine was given, in order."""
    given, begin = [], engine.begin

    def spied(query, options, timings, cancel, policy):
        given.append(cancel)
        return begin(query, options, timings, cancel, policy)

    monkeypatch.setattr(engine, "begin", spied)
    return given


@pytest.mark.parametrize("stream", [False, True])
def test_closing_the_connection_stops_the_decoding(running, app, gate, cancelled, stream):
    with running(app) as (_, url):
        request = httpx.Request("POST", f"{url}/generate", json={**LONG, "stream": stream})
        with socket.create_connection((request.url.host, request.url.port)) as connection:
            head = "POST /generate HTTP/1.1\r\nHost: kvps\r\nContent-Type: application/json\r\n"
            length = f"Content-Length: {len(request.content)}\r\n\r\n"
            connection.sendall(head.encode() + length.encode() + request.content)
            asyncio.run(gate.reach_step(4))
        assert cancelled[0].wait(60)
        gate.open()
        after = httpx.post(f"{url}/generate", json={**LONG, "max_new_tokens": 1}, timeout=60)
        assert after.status_code == 200
    assert gate.num_steps == 4


def test_pieces_arrive_while_the_answer_is_decoded(running, app, gate):
    with running(app) as (_, url):
        gate_keeper = threading.Thread(target=asyncio.run, args=(gate.reach_step(20),))
        gate_keeper.start()
        asked = {**LONG, "stream": True}
        with httpx.stream("POST", f"{url}/generate", json=asked, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith('data: {"text"')
            gate_keeper.join(60)
            assert gate.num_steps == 20
            gate.open()
            assert '"usage"' in [line for line in lines if line][-1]


def test_a_shutdown_finishes_what_runs(running, app, gate):
    answers = []
    with running(app) as (server, url):
        asked = {**LONG, "max_new_tokens": 5}
        client = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/generate", json=asked, timeout=60))
        )
        client.start()
        asyncio.run(gate.reach_step(2))
        server.should_exit = True
        gate.open()
        client.join(60)
    assert answers[0].status_code == 200
    assert answers[0].json()["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org", ""])
def test_only_loopback_is_served(store, host):
    with pytest.raises(UsageError, match="keys"):
        serve(store.path, host=host)


def test_a_taken_port_is_said(store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=str(port)):
            serve(store.path, port=port)


def test_a_port_that_is_none_is_said(store):
    with pytest.raises(UsageError, match="70000"):
        serve(store.path, port=70_000)


def test_no_store_no_server(tmp_path):
    with pytest.raises(NotFoundError):
        serve(tmp_path / "absent.kvps")
