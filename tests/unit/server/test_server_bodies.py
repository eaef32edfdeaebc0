"""Bodies over real connections: too long, too slow, not as long as they say."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import pytest
from kvpacket_store._server import ServerLimits, create_app
from kvpacket_store._server.graceful import new_server

BODY = json.dumps({"documents": [{"id": "x", "text": "t" * 40}]}).encode()


@contextmanager
def connection(store, engine, limits):
    app = create_app(store, engine=engine, limits=limits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = new_server(app, limits)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(60)


def head(*fields):
    lines = ["POST /ingest HTTP/1.1", "Host: kvps", "Content-Type: application/json", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


def read_all(client):
    """Return what comes until the server closes the connection."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("sent", [b"", BODY[:5]])
@pytest.mark.parametrize("framing", [f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_408(store, engine, sent, framing):
    chunked = b"%x\r\n%s\r\n" % (len(sent), sent) if "chunked" in framing and sent else sent
    with connection(store, engine, ServerLimits(body_timeout_s=0.2)) as client:
        client.sendall(head(framing) + chunked)
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer


def test_a_body_that_is_announced_too_long_is_not_waited_for(store, engine):
    with connection(store, engine, ServerLimits(body_timeout_s=600)) as client:
        client.sendall(head("Content-Length: 99999999999"))
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_longer_than_announced_is_cut_and_the_rest_is_no_request(store, engine):
    with connection(store, engine, ServerLimits()) as client:
        client.sendall(head(f"Content-Length: {len(BODY) - 9}") + BODY)
        client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 422")
    assert b" 200 " not in answer  # and the connection is closed, for `read_all` came to an end
    assert store.stats().documents == 3


def test_lengths_that_contradict_each_other_are_refused(store, engine):
    with connection(store, engine, ServerLimits()) as client:
        client.sendall(head("Content-Length: 5", f"Content-Length: {len(BODY)}") + BODY)
        assert read_all(client).startswith(b"HTTP/1.1 400")


def test_who_leaves_amid_the_body_leaves_nothing(store, engine):
    with connection(store, engine, ServerLimits()) as client:
        client.sendall(head(f"Content-Length: {len(BODY)}") + BODY[:-1])
        client.shutdown(socket.SHUT_WR)
        read_all(client)
    assert store.stats().documents == 3
