"""With keys everything is closed but what says so; a key sees its namespace, and no other."""

from __future__ import annotations

import gc
import sys

import httpx
import pytest
from fastapi.routing import APIRoute
from kvpacket_store._server import create_app
from kvpacket_store._server.authentication import OPEN_PATHS
from kvpacket_store._server.callers import Admin, Reader, Writer

from kvpacket_store.errors import NotFoundError

pytestmark = pytest.mark.anyio
SHORT = {"max_new_tokens": 2, "ignore_eos": True}
ROLES = {role.__metadata__[0].dependency for role in (Reader, Writer, Admin)}


@pytest.fixture
def keys(new_keys):
    return new_keys(
        reader="read default", writer="write default", admin="admin default", bob="admin b"
    )


def routes_of(router):
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
        else:
            yield route


async def test_every_route_but_three_is_closed(client):
    routes = [*routes_of(client.app)]
    assert {"/generate", "/ingest", "/metrics", "/openapi.json"} <= {route.path for route in routes}
    for route in routes:
        path = route.path.replace("{", "").replace("}", "")
        for method in route.methods:
            response = await client.request(method, path)
            if path in OPEN_PATHS:
                assert response.status_code == 200
                continue
            assert response.status_code == 401, (method, path)
            scheme = "Basic" if (method, path) == ("GET", "/ui") else "Bearer"
            assert response.headers["www-authenticate"].startswith(scheme)
    assert {"/health", "/ready", "/version"} == OPEN_PATHS


async def test_the_page_takes_a_key_as_a_browser_sends_it(client):
    """And nothing else does: a browser would send it along wherever a page makes it ask."""
    key = client.key("reader").headers["Authorization"].removeprefix("Bearer ")
    as_password = httpx.BasicAuth("anyone", key)
    assert (await client.get("/ui", auth=as_password)).status_code == 200
    assert (await client.get("/stats", auth=as_password)).status_code == 401
    for wrong in (httpx.BasicAuth(key, ""), httpx.BasicAuth("anyone", key + "x")):
        assert (await client.get("/ui", auth=wrong)).status_code == 401
    for wrong in ("Basic", "Basic ???", "Basic YQ=="):
        refused = await client.get("/ui", headers={"Authorization": wrong})
        assert refused.status_code == 401


async def test_under_v1_it_is_openais_error(client):
    refused = await client.get("/v1/models")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["type"] == "authentication_error"
    assert (await client.key("reader").get("/v1/models")).status_code == 200


async def test_every_closed_route_asks_for_a_role(client):
    for route in routes_of(client.app):
        if isinstance(route, APIRoute) and route.path not in OPEN_PATHS:
            assert ROLES & {one.call for one in route.dependant.dependencies}, route.path


async def test_a_route_that_forgets_to_ask_who_it_is_is_closed(store, engine, keys, new_client):
    app = create_app(store, engine=engine, keys=keys)

    @app.get("/forgotten")
    async def forgotten():
        return "open"

    async with app.router.lifespan_context(app), new_client(app) as client:
        assert (await client.get("/forgotten")).status_code == 401


@pytest.mark.parametrize(
    "path", ["/nowhere", "/health/", "/healthx", "//health", "/ready/../metrics", "/HEALTH", "/"]
)
async def test_so_is_what_is_no_route(client, path):
    assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic SENTINEL key of admin",
        "SENTINEL key of admin",
        "Bearer SENTINEL key of adm\xefn",
        "Bearer SENTINEL key of admin, Bearer x",
    ],
)
async def test_no_key_or_a_wrong_one_is_401_and_the_same_for_all(client, header):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    response = await client.post("/generate", json={"query": "q"}, headers=headers)
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert "Authorization: Bearer KEY" in response.json()["detail"]
    assert "SENTINEL" not in response.text


async def test_two_keys_are_none(client):
    twice = [("Authorization", "Bearer SENTINEL key of admin")] * 2
    assert (await client.get("/metrics", headers=twice)).status_code == 401


async def test_the_scheme_has_no_case(client):
    headers = {"Authorization": "bEARER SENTINEL key of reader"}
    response = await client.post("/generate", json={"query": "q", **SHORT}, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("reader", {"read"}), ("writer", {"read", "write"}), ("admin", {"read", "write", "admin"})],
)
async def test_a_role_includes_those_before_it(client, name, allowed):
    client.key(name)
    got = {
        "read": await client.generate(documents=["a"], **SHORT),
        "write": await client.ingest({"id": "x", "text": "t"}),
        "admin": await client.get("/metrics"),
    }
    counts = (await client.get("/stats")).json()["metrics"]
    assert bool(counts) == ("admin" in allowed)  # they are of all namespaces
    assert {role: response.status_code for role, response in got.items()} == {
        role: 200 if role in allowed else 403 for role in got
    }
    for role in got.keys() - allowed:
        assert got[role].headers["content-type"] == "application/problem+json"
        assert f"this takes {role}" in got[role].json()["detail"]


async def test_the_namespace_is_the_keys(client, store):
    client.key("bob")
    assert (await client.ingest({"id": "own", "text": "Bob's."})).status_code == 200
    answer = await client.generate(top_k=5, **SHORT)
    assert [document["id"] for document in answer.json()["documents"]] == ["own"]
    assert store.show("own", namespace="b")["text"] == "Bob's."
    for refused in (
        await client.generate(documents=["a"], namespace="default"),
        await client.ingest({"id": "a", "text": "t"}, namespace="default"),
    ):
        assert refused.status_code == 422
        assert "comes from the key" in refused.json()["detail"]
    assert (await client.generate(documents=["own"], namespace="b", **SHORT)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_anothers_document_is_answered_as_an_absent_one(client, store, stream):
    client.key("bob")
    await client.ingest({"id": "own", "text": "Bob's."})
    foreign = await client.generate(documents=["own", "a"], stream=stream)
    store.delete("a")
    absent = await client.generate(documents=["own", "a"], stream=stream)
    assert foreign.status_code == absent.status_code == 404
    assert foreign.content == absent.content
    assert told(foreign) == told(absent)


def told(response):
    return {k: v for k, v in response.headers.items() if k != "x-request-id"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("127.8.9.1:80", 200),
        ("[::1]:8000", 200),
        ("rebound.example:8000", 421),
        ("127.0.0.1.rebound.example", 421),
        ("0.0.0.0", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_without_keys_a_page_whose_name_means_this_machine_learns_nothing(
    store, engine, new_client, host, status
):
    app = create_app(store, engine=engine, local_names_only=True)
    async with app.router.lifespan_context(app), new_client(app) as client:
        response = await client.get("/stats", headers={"Host": host})
    assert response.status_code == status, response.text


@pytest.mark.parametrize("documents", [["own", "a"], ["a"]])
async def test_the_same_is_done_for_both(engine, store, documents):
    from kvpacket_store.types import Document

    store.ingest([Document("own", "Bob's.")], namespace="b")

    def calls():
        seen = []

        def note(frame, event, _arg):
            if event == "call" and "kvpacket_store" in frame.f_code.co_filename:
                seen.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))

        gc.collect()
        gc.disable()
        sys.setprofile(note)
        try:
            engine.generate("q", documents=documents, namespace="b")
        except NotFoundError:
            return seen
        finally:
            sys.setprofile(None)
            gc.enable()
        raise AssertionError("it was found")

    calls()  # what is made at the first use is made
    foreign = calls()
    store.delete("a")
    assert calls() == foreign
    assert len(foreign) > 10
