"""Bodies that are not what a route takes: 422, with the field, without its content."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}


def assert_malformed(response, pointer):
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == "urn:kvpacket-store:problem:malformed"
    assert {"title", "status", "detail", "errors"} <= problem.keys()
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert problem["detail"].startswith(problem["errors"][0]["pointer"])
    assert "SECRET" not in response.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/documents"),
        ({"documents": {}}, "#/documents"),
        ({"documents": [{"text": "SECRET"}]}, "#/documents/0/id"),
        ({"documents": [{"id": "a", "text": 5}]}, "#/documents/0/text"),
        ({"documents": [{"id": 5, "text": "SECRET"}]}, "#/documents/0/id"),
        ({"documents": [{"id": "a", "text": "t", "meta": 1}]}, "#/documents/0/meta"),
        ({"documents": [{"id": "a", "text": "t", "metadata": [1]}]}, "#/documents/0/metadata"),
        ({"documents": [], "namespace": 1}, "#/namespace"),
        ({"documents": [], "x/y~z": 1}, "#/x~1y~0z"),
    ],
)
async def test_ingest_names_the_field(client, body, pointer):
    assert_malformed(await client.post("/ingest", json=body), pointer)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"query": None}, "#/query"),
        ({"query": ["SECRET"]}, "#/query"),
        ({"documents": "a"}, "#/documents"),
        ({"documents": [1]}, "#/documents/0"),
        ({"documents": ["a"] * 5000}, "#/documents"),
        ({"top_k": 0}, "#/top_k"),
        ({"top_k": "3"}, "#/top_k"),
        ({"top_k": 10**6}, "#/top_k"),
        ({"where": []}, "#/where"),
        ({"max_new_tokens": 0}, "#/max_new_tokens"),
        ({"max_new_tokens": True}, "#/max_new_tokens"),
        ({"max_new_tokens": 1.5}, "#/max_new_tokens"),
        ({"temperature": -1}, "#/temperature"),
        ({"seed": -1}, "#/seed"),
        ({"sampling_top_k": -1}, "#/sampling_top_k"),
        ({"sampling_top_k": 1.5}, "#/sampling_top_k"),
        ({"top_p": 0}, "#/top_p"),
        ({"top_p": 1.1}, "#/top_p"),
        ({"repetition_penalty": 0}, "#/repetition_penalty"),
        ({"seed": 2**64}, "#/seed"),
        ({"stop": ""}, "#/stop/0"),
        ({"stop": [1]}, "#/stop/0"),
        ({"stop": ["s"] * 17}, "#/stop"),
        ({"stream": "yes"}, "#/stream"),
        ({"consistency": "SECRET"}, "#/consistency"),
        ({"decode": "fast"}, "#/decode"),
        ({"exactness": "exact"}, "#/exactness"),
        ({"session": "s"}, "#/session"),
    ],
)
async def test_generate_names_the_field(client, fields, pointer):
    assert_malformed(await client.generate(**{"query": "q", **fields}), pointer)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SECRET",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"query": ' + b"9" * 5000 + b"}",
        b'"SECRET"',
        b"null",
    ],
)
async def test_what_is_no_json_object_is_422(client, content):
    assert_malformed(await client.post("/generate", content=content, headers=JSON), "#")


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (b'{"query": "\\ud800"}', "#/query"),
        (b'{"query": "q", "temperature": NaN}', "#/temperature"),
        (b'{"query": "q", "temperature": Infinity}', "#/temperature"),
        (b'{"query": "q", "where": {"a": NaN}}', "#/where"),
        (b'{"query": "q", "where": {"\\udfff": 1}}', "#/where"),
        (b'{"query": "q", "documents": ["\\udfff"]}', "#/documents/0"),
        (b'{"query": "q", "stop": "\\udfff"}', "#/stop/0"),
    ],
)
async def test_what_json_can_spell_but_nothing_means_is_422(client, content, pointer):
    assert_malformed(await client.post("/generate", content=content, headers=JSON), pointer)


async def test_deeply_nested_metadata_is_422(client):
    nested = b"[" * 900 + b"]" * 900
    content = b'{"documents": [{"id": "a", "text": "t", "metadata": {"m": %s}}]}' % nested
    response = await client.post("/ingest", content=content, headers=JSON)
    assert response.status_code == 422
    assert len(response.content) < 5000


async def test_a_body_that_is_not_called_json_is_422(client):
    """A web page of another site can send such a body without being asked for leave."""
    response = await client.post(
        "/generate", content=b'{"query": "q"}', headers={"content-type": "text/plain"}
    )
    assert_malformed(response, "#")


async def test_many_errors_give_a_short_answer(client):
    response = await client.generate(**{f"unknown{i}": 1 for i in range(5000)})
    assert response.status_code == 422
    assert len(response.json()["errors"]) == 20


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/generate", 405)]
)
async def test_routes_that_are_not_there_are_problems_too(client, method, path, status):
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
