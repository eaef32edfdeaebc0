"""`GET /stats` says what `kvps stats` says of the store, and `GET /metrics` of the server."""

from __future__ import annotations

import asyncio

import pytest
from kvpacket_store._server import ServerLimits, create_app
from kvpacket_store._server.callers import Caller, Role
from kvpacket_store._server.statistics import store_statistics
from prometheus_client.parser import text_string_to_metric_families

import kvpacket_store as kv
from kvpacket_store.errors import UsageError

pytestmark = pytest.mark.anyio


async def counted(client):
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


async def test_the_store_is_told_as_the_command_tells_it(client, store):
    told = (await client.get("/stats")).json()
    report = store.stats().to_dict()
    assert {name: told[name] for name in report} == report
    assert told["documents"] == 3
    assert told["store"]["raw_bits_per_scalar"] == 8 * store.kv_dtype.itemsize_bytes
    assert told["store"]["codec"] == store.meta.codec
    assert told["version"] == kv.__version__
    assert told["not_ready"] == []


async def test_the_server_is_told_as_prometheus_is_told(client, engine):
    await client.app.state.services.loaded.wait()
    asked = {"documents": ["a", "b"], "max_new_tokens": 6, "ignore_eos": True}
    usage = [(await client.generate(**asked)).json()["usage"] for _ in range(2)]
    await client.generate(documents=["nobody"])
    told = (await client.get("/stats")).json()["metrics"]
    for (name, *labels), value in (await counted(client)).items():
        key = next(
            one
            for one in told
            if one.partition("{")[0] == name and all(f'="{label}"' in one for label in labels)
        )
        assert told[key] == value, key
    assert told['kvpacket_requests_total{outcome="answered"}'] == 2
    assert told['kvpacket_requests_total{outcome="not-found"}'] == 1
    assert told["kvpacket_memory_hits_total"] == engine.memory.stats().hits > 0
    for name in usage[0]:
        assert told[f"kvpacket_{name}_total"] == sum(one[name] for one in usage)


async def test_one_namespace_can_be_asked_for(client, store):
    store.ingest([kv.Document(id="x", text="elsewhere")], namespace="other")
    told = (await client.get("/stats", params={"namespace": "other"})).json()
    assert told["documents"] == 1
    assert (await client.get("/stats")).json()["documents"] == 4
    absent = await client.get("/stats", params={"namespace": "absent"})
    assert absent.status_code == 404
    assert absent.headers["content-type"] == "application/problem+json"


async def test_who_has_a_key_learns_of_no_other_namespace(store):
    store.ingest([kv.Document(id="x", text="elsewhere")], namespace="other")
    told = store_statistics(store, Caller("one", Role.READ, "other"), None)
    assert told["documents"] == 1
    assert told["namespaces"] == ["other"]
    assert told["file_bytes"] is None
    assert told["pack_bytes"] is None
    fresh = store_statistics(store, Caller("two", Role.READ, "fresh"), None)
    assert (fresh["documents"], fresh["layers"], fresh["namespaces"]) == (0, [], ["fresh"])
    with pytest.raises(UsageError, match="key"):
        store_statistics(store, Caller("one", Role.ADMIN, "other"), "default")


async def test_a_store_that_nobody_judged_says_so(client):
    quality = (await client.get("/stats")).json()["quality"]
    assert quality["verified"] is False
    assert "report" in quality["reason"]


async def test_it_is_told_before_the_model_is_there(store, monkeypatch, new_client):
    loading = asyncio.Event()
    monkeypatch.setattr("kvpacket_store._server.wiring.Services.load", lambda _: loading.wait())
    app = create_app(store)
    async with app.router.lifespan_context(app), new_client(app) as client:
        told = (await client.get("/stats")).json()
        assert told["documents"] == 3
        assert "loading" in told["not_ready"][0]
        assert "kvpacket_requests_running" not in told["metrics"]
        loading.set()


@pytest.mark.parametrize("limits", [ServerLimits(waiting_reports=0)])
async def test_only_so_many_read_the_store_at_once(client, store, monkeypatch):
    inside, go_on = asyncio.Event(), asyncio.Event()
    loop, stats = asyncio.get_running_loop(), store.stats

    def held(**asked):
        loop.call_soon_threadsafe(inside.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return stats(**asked)

    monkeypatch.setattr(type(store), "stats", lambda _, **asked: held(**asked))
    first = asyncio.create_task(client.get("/stats"))
    await inside.wait()
    second = await client.get("/stats")
    assert (second.status_code, second.headers["retry-after"]) == (429, "2")
    go_on.set()
    assert (await first).status_code == 200
