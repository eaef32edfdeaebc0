"""`GET /metrics` counts what answers say of themselves, and how requests end."""

from __future__ import annotations

import asyncio

import pytest
from kvpacket_store._server import ServerLimits, create_app
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from kvpacket_store.api.exactness import exactness_of
from kvpacket_store.errors import CorruptRecordError, UsageError

pytestmark = pytest.mark.anyio
LENGTH = {"max_new_tokens": 12, "ignore_eos": True}
ASKED = [
    {"documents": ["a"]},
    {"documents": ["b", "a"], "temperature": 0.8, "seed": 3},
    {"documents": ["c"], "decode": "verified", "compressor": "int4", "draft_tokens": 3},
    {"top_k": 2},
]


async def samples(client):
    """Return every sample by name and labels, as ``name{outcome}`` where there is one."""
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    found = {}
    for family in text_string_to_metric_families(response.text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_totals_are_the_sums_of_the_usage_of_answers(client):
    plain = await asyncio.gather(*(client.generate(**one, **LENGTH) for one in ASKED))
    streamed = await asyncio.gather(*(client.events(**one, **LENGTH) for one in ASKED))
    answers = [one.json() for one in plain] + [events[-1][1] for events in streamed]
    found = await samples(client)
    for name in answers[0]["usage"]:
        total = sum(answer["usage"][name] for answer in answers)
        assert found[f"kvpacket_{name}_total"] == total, name
    assert found["kvpacket_accepted_draft_tokens_total"] > 0
    assert found["kvpacket_completion_tokens_total"] == 8 * 12
    assert found["kvpacket_requests_total{answered}"] == 8
    assert found["kvpacket_first_token_seconds_count"] == 8
    firsts = sum(answer["timings_ms"]["first_token"] for answer in answers)
    assert found["kvpacket_first_token_seconds_sum"] == pytest.approx(firsts / 1e3)
    assert found["kvpacket_guarded_rows_total"] == sum(a["decode"]["guarded"] for a in answers)


async def test_requests_are_counted_by_how_they_ended(client):
    await client.generate(documents=["nobody"])
    await client.generate(documents=["a"], compressor="nonsense")
    await client.generate(" ")
    await client.generate(documents=["a"], **LENGTH)
    found = await samples(client)
    ended = {
        name: n for name, n in found.items() if name.startswith("kvpacket_requests_total") and n
    }
    assert ended == {
        "kvpacket_requests_total{answered}": 1,
        "kvpacket_requests_total{not-found}": 1,
        "kvpacket_requests_total{usage}": 2,
    }


@pytest.mark.parametrize("limits", [ServerLimits(running_generations=1, waiting_generations=1)])
async def test_who_runs_who_waits_who_is_refused_and_who_left(client, gate):
    running = asyncio.create_task(client.generate(documents=["a"], **LENGTH))
    await gate.reach_step(2)
    waiting = asyncio.create_task(client.generate(documents=["a"], **LENGTH))
    while not client.app.state.services.generations.num_waiting:
        await asyncio.sleep(0)
    await client.generate(documents=["a"], **LENGTH)
    found = await samples(client)
    assert found["kvpacket_requests_running"] == found["kvpacket_requests_waiting"] == 1
    assert found["kvpacket_running_kv_bytes"] > 0
    assert found["kvpacket_requests_total{busy}"] == 1
    generations = client.app.state.services.generations
    generations.cancel(next(reversed(generations._generations)))
    assert (await waiting).status_code == 499
    gate.open()
    assert (await running).status_code == 200
    while client.app.state.services.generations.held_bytes:
        await asyncio.sleep(0)
    found = await samples(client)
    assert found["kvpacket_requests_running"] == found["kvpacket_requests_waiting"] == 0
    assert found["kvpacket_requests_total{cancelled}"] == 1


async def test_packets_that_were_prefilled_again_are_counted(client, store, monkeypatch):
    def damaged(*_, **__):
        raise CorruptRecordError("damaged")

    monkeypatch.setattr(store.packets, "read_packet", damaged)
    answer = (await client.generate(documents=["b"], **LENGTH)).json()
    assert answer["fallbacks"]
    found = await samples(client)
    assert found["kvpacket_fallbacks_total"] == len(answer["fallbacks"])


async def test_what_the_machine_keeps_and_what_memory_holds(client, engine, model):
    await client.app.state.services.loaded.wait()
    for _ in range(2):
        await client.generate(documents=["a"], **LENGTH)
    found = await samples(client)
    assert found["kvpacket_exactness{bit}"] == found["kvpacket_exactness{guarded}"] == 1
    assert found["kvpacket_guard_logits"] == exactness_of(model).guard_logits
    stats = engine.memory.stats()
    assert found["kvpacket_memory_hits_total"] == stats.hits > 0
    assert found["kvpacket_memory_misses_total"] == stats.misses > 0
    assert found["kvpacket_memory_bytes"] == stats.held_bytes > 0
    assert found["kvpacket_audited_answers_total"] == 0
    assert "kvpacket_audit_agreement_ratio" not in found


async def test_audits_are_told(store, model, new_client):
    app = create_app(store, audit=0.5)
    async with app.router.lifespan_context(app), new_client(app) as client:
        await client.app.state.services.loaded.wait()
        for _ in range(4):
            await client.generate(documents=["a"], **LENGTH)
        totals = app.state.services.engine.auditor
        while totals.totals.requests < 2:
            await asyncio.sleep(0.01)
        found = await samples(client)
    assert found["kvpacket_audited_answers_total"] == 2
    assert found["kvpacket_audited_tokens_total"] == 24
    means = store.stats().audit
    assert found["kvpacket_audit_agreement_ratio"] == means["agreement"]
    assert found["kvpacket_audit_mean_kl_nats"] == pytest.approx(means["kl_nats"])


async def test_apps_count_apart_and_nothing_goes_to_the_registry_of_the_process(
    store, engine, client, new_client
):
    await client.generate(documents=["a"], **LENGTH)
    other = create_app(store, engine=engine)
    async with other.router.lifespan_context(other), new_client(other) as fresh:
        assert (await samples(fresh))["kvpacket_requests_total{answered}"] == 0
    assert not any(family.name.startswith("kvpacket") for family in REGISTRY.collect())


@pytest.mark.parametrize("audit", [-0.1, 1.5, float("nan")])
async def test_a_share_that_is_none_is_refused(store, audit):
    with pytest.raises(UsageError, match="share"):
        create_app(store, audit=audit)


async def test_an_engine_has_its_own_auditor(store, engine):
    with pytest.raises(UsageError, match="audit"):
        create_app(store, engine=engine, audit=0.5)
