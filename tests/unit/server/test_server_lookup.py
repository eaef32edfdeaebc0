"""What fits a question is found without an answer, and packets come near before it is asked."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.anyio
SHORT = {"max_new_tokens": 2, "ignore_eos": True}


async def test_found_segments_have_their_text_and_are_what_an_answer_takes(client, store):
    response = await client.post("/lookup", json={"query": "What was lit?", "top_k": 2})
    assert response.status_code == 200
    segments = response.json()["segments"]
    assert len(segments) == 2
    assert segments[0]["score"] >= segments[1]["score"]
    for found in segments:
        shown = store.show(found["id"])
        packet = shown["packets"][found["segment"]]
        assert found["text"] in shown["text"]
        assert (found["packet_key"], found["tokens"]) == (packet["packet_key"], packet["tokens"])
    answer = (await client.generate(top_k=2, **SHORT)).json()
    assert [d["id"] for d in answer["documents"]] == [found["id"] for found in segments]


async def test_only_documents_with_the_metadata_are_found(client):
    await client.ingest({"id": "m", "text": "New.", "metadata": {"kind": "x"}})
    body = {"query": "q", "top_k": 9, "where": {"kind": "x"}}
    segments = (await client.post("/lookup", json=body)).json()["segments"]
    assert [(found["id"], found["metadata"]) for found in segments] == [("m", {"kind": "x"})]


@pytest.mark.parametrize(
    "body", [{}, {"query": " "}, {"query": "q", "top_k": 0}, {"query": "q", "where": {"a": {}}}]
)
async def test_a_lookup_that_cannot_be_done_is_422(client, body):
    assert (await client.post("/lookup", json=body)).status_code == 422


async def loaded(engine, num_packets):
    async with asyncio.timeout(60):
        while engine.memory.stats().held < num_packets:
            await asyncio.sleep(0.01)


async def test_prefetched_packets_are_in_memory(client, engine, store):
    held = sum(len(store.show(document_id)["packets"]) for document_id in "ab")

    engine.memory.clear()
    response = await client.post("/prefetch", json={"documents": ["a", "b", "a"]})
    assert response.status_code == 202
    assert (response.json()["documents"], response.json()["packets"]) == (2, held)
    assert response.json()["bytes"] > 0
    await loaded(engine, held)
    assert f"kvpacket_prefetched_packets_total {held}.0" in (await client.get("/metrics")).text


async def test_the_answer_that_follows_reads_no_disk(client, engine):
    await client.post("/prefetch", json={"documents": ["c"]})
    await loaded(engine, 1)
    answer = (await client.generate(documents=["c"], **SHORT)).json()
    assert [packet["tier"] for d in answer["documents"] for packet in d["packets"]] == ["ram"]


async def test_so_are_those_that_fit_a_question(client, engine):
    engine.memory.clear()
    response = await client.post("/prefetch", json={"query": "q", "top_k": 2})
    assert (response.status_code, response.json()["packets"]) == (202, 2)
    await loaded(engine, 2)


async def test_absent_documents_are_404_and_nothing_is_loaded(client, engine):
    held = engine.memory.stats().held
    response = await client.post("/prefetch", json={"documents": ["a", "nobody"]})
    assert response.status_code == 404
    assert engine.memory.stats().held == held


@pytest.mark.parametrize("body", [{}, {"documents": ["a"], "query": "q"}, {"documents": [1]}])
async def test_a_prefetch_of_nothing_or_of_two_things_is_422(client, body):
    assert (await client.post("/prefetch", json=body)).status_code == 422
