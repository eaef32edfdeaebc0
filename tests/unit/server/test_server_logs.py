"""Each request has an id and one line; what users write is in no line, whatever goes wrong."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
from fastapi.responses import StreamingResponse
from kvpacket_store._server import ServerLimits, create_app
from kvpacket_store._server.logs import LineFormatter

from kvpacket_store.errors import StoreCorruptError

pytestmark = pytest.mark.anyio
SHORT = {"max_new_tokens": 4, "ignore_eos": True}


@pytest.fixture
def keys(new_keys):
    return new_keys(ann="admin default", reader="read default")


@pytest.fixture(params=["text", "json"])
def form(request):
    return request.param


@pytest.fixture
def log(form):
    """What a server process would write to stderr, at level DEBUG."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(as_json=form == "json"))
    handler.addFilter(lambda record: record.name.startswith(("kvpacket_store", "uvicorn")))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def requests_of(log):
    """Return the lines of requests, as mappings."""
    lines = log.getvalue().splitlines()
    if lines and not lines[0].startswith("{"):
        found = [line for line in lines if " INFO request " in line]
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in found]
    return [one for one in map(json.loads, lines) if one["message"] == "request"]


async def test_a_request_has_one_line(client, log, form):
    client.key("ann")
    answer = await client.generate(documents=["a"], **SHORT)
    streamed = await client.generate(documents=["a"], **SHORT, stream=True)
    await client.key(None).get("/health")
    first, second, third = requests_of(log)
    assert [one["request_id"] for one in (first, second)] == [
        response.headers["x-request-id"] for response in (answer, streamed)
    ]
    usage = answer.json()["usage"]
    for line in (first, second):
        assert (line["method"], line["route"], line["key"]) == ("POST", "/generate", "ann")
        assert float(line["ms"]) > 0
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            assert int(line[name]) == usage[name]
        assert int(line["status"]) == 200
    assert (third["route"], third["key"]) == ("/health", None if form == "json" else "-")


@pytest.mark.parametrize("form", ["json"])
async def test_the_route_is_as_declared_and_no_path_is_logged(client, log):
    client.key("ann")
    await client.get("/documents/SENTINEL?x=SENTINEL")
    await client.request("SENTINEL", "/generate")
    await client.key(None).get("/SENTINEL")
    assert "SENTINEL" not in log.getvalue()
    assert [one["status"] for one in requests_of(log)][1:] == [405, 401]
    assert requests_of(log)[1]["method"] == "other"


@pytest.mark.parametrize("given", ["abc-1.2_3~4:5", "a" * 64])
async def test_a_clients_id_is_taken(client, log, form, given):
    response = await client.get("/health", headers={"X-Request-Id": given})
    assert response.headers["x-request-id"] == given
    assert requests_of(log)[0]["request_id"] == given


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", 'a"b', "a\xe9", "a\tb", "a,b"])
async def test_an_odd_one_is_not(client, given):
    response = await client.get("/health", headers={"X-Request-Id": given.encode("latin-1")})
    assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


async def test_every_response_has_one(client, engine, monkeypatch):
    monkeypatch.setattr(engine, "begin", lambda *_: 1 / 0)
    unauthorized = await client.get("/metrics")
    client.key("reader")
    for status, response in [
        (401, unauthorized),
        (403, await client.ingest({"id": "x", "text": "t"})),
        (404, await client.get("/nowhere")),
        (405, await client.get("/generate")),
        (422, await client.generate(query=None)),
        (500, await client.generate(documents=["a"])),
        (500, await client.generate(documents=["a"], stream=True)),
    ]:
        assert response.status_code == status
        assert response.headers["x-request-id"]
        assert response.headers["content-type"] == "application/problem+json"


def fail_with(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize("limits", [ServerLimits(body_bytes=2_000)])
@pytest.mark.parametrize("error", [RuntimeError, StoreCorruptError, OSError])
async def test_nothing_that_users_wrote_is_logged(client, engine, log, monkeypatch, error):
    client.key("ann")
    document = {"id": "SENTINEL", "text": "SENTINEL <|im_end|>", "metadata": {"SENTINEL": "x"}}
    asked = {"query": "SENTINEL?", "stop": ["SENTINEL"], **SHORT}
    said = [{"role": "system", "content": "SENTINEL"}, {"role": "user", "content": "SENTINEL?"}]
    chat = {"messages": said, "documents": ["SENTINEL"], "max_tokens": 2}
    statuses = [
        await client.ingest(document),
        await client.ingest({**document, "id": "SENTINEL" * 200}),
        await client.generate(**asked, documents=["SENTINEL"]),
        await client.generate(**asked, where={"SENTINEL": "x"}),
        await client.generate(**asked, documents=["SENTINEL", "absent SENTINEL"]),
        await client.generate(**asked, documents=["SENTINEL"], stream=True),
        await client.generate(**asked, compressor="SENTINEL"),
        await client.generate(**asked, namespace="SENTINEL"),
        await client.generate(query=["SENTINEL"]),
        await client.ingest({**document, "SENTINEL": 1}),
        await client.post("/ingest", content=b"{SENTINEL"),
        await client.post("/v1/embeddings", json={"input": "SENTINEL"}),
        await client.post("/v1/chat/completions", json=chat),
        await client.post("/v1/chat/completions", json={**chat, "stream": True}),
        await client.post("/v1/chat/completions", json={**chat, "SENTINEL": True}),
        await client.get("/v1/models/SENTINEL"),
        await client.get("/stats?namespace=SENTINEL"),
        await client.post("/ingest", content=b"SENTINEL" * 1_000),
    ]
    with monkeypatch.context() as broken:
        broken.setattr(engine, "begin", fail_with(error("SENTINEL")))
        statuses += [await client.generate(**asked), await client.generate(**asked, stream=True)]
    with monkeypatch.context() as broken:
        broken.setattr(
            "kvpacket_store.api.running.AnswerPieces.finish", fail_with(error("SENTINEL"))
        )
        statuses += [await client.generate(**asked), await client.generate(**asked, stream=True)]
    with monkeypatch.context() as broken:
        broken.setattr(engine, "audit", fail_with(error("SENTINEL")))
        statuses.append(await client.generate(**asked))
    with monkeypatch.context() as broken:
        running = client.app.state.services.generations._running
        broken.setattr(running, "_begin_some", fail_with(error("SENTINEL")))
        step = running.step
        broken.setattr(running, "step", lambda: (broken.undo(), step_once(step)))
        statuses.append(await client.generate(**asked))
    client.headers["Authorization"] = "Bearer SENTINEL wrong"
    statuses.append(await client.generate(**asked))
    found = {response.status_code for response in statuses}
    assert {200, 401, 404, 413, 422, 500} <= found
    assert len(requests_of(log)) == len(statuses)
    assert "RuntimeError" in log.getvalue() or error is not RuntimeError
    assert "SENTINEL" not in log.getvalue()


def step_once(step):
    raise RuntimeError("SENTINEL")


async def test_a_fault_is_logged_with_its_place(client, engine, log, monkeypatch):
    monkeypatch.setattr(engine, "begin", fail_with(RuntimeError("SENTINEL")))
    response = await client.key("ann").generate(documents=["a"])
    [line] = [line for line in log.getvalue().splitlines() if "RuntimeError" in line]
    assert re.search(r"RuntimeError at test_server_logs\.py:\d+ < ", line)
    assert response.headers["x-request-id"] in line


async def test_an_exception_of_others_is_written_without_its_message(log):
    try:
        raise ValueError("SENTINEL")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    assert "ValueError" in log.getvalue()
    assert "SENTINEL" not in log.getvalue()
    assert len(log.getvalue().splitlines()) == 1


async def test_a_connection_that_is_lost_amid_a_response_is_no_fault(store, engine, log):
    app = create_app(store, engine=engine)

    async def lost(message):
        raise OSError("connection lost")

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/health", "headers": [], "query_string": b""}
    async with app.router.lifespan_context(app):
        await app(scope, receive, lost)
    assert "ERROR" not in log.getvalue()
    assert len(requests_of(log)) == 1


async def test_a_response_that_breaks_off_is_logged_without_its_message(
    store, engine, log, new_client
):
    app = create_app(store, engine=engine)

    @app.get("/breaks")
    async def breaks():
        async def pieces():
            yield b"one"
            raise RuntimeError("SENTINEL")

        return StreamingResponse(pieces())

    async with app.router.lifespan_context(app), new_client(app) as client:
        with pytest.raises(AssertionError):  # the client sees that there is no end
            await client.get("/breaks")
    assert "a response broke off: RuntimeError" in log.getvalue()
    assert "SENTINEL" not in log.getvalue()
