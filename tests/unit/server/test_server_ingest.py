"""`POST /ingest` files small batches at once and says how to split large ones."""

from __future__ import annotations

import pytest
from kvpacket_store._server import ServerLimits, create_app

from kvpacket_store.errors import StoreFullError

pytestmark = pytest.mark.anyio


def numbered(count, text="Some text."):
    return [{"id": f"d{i}", "text": f"{text} {i}"} for i in range(count)]


async def test_the_answer_is_the_report_and_the_documents_are_there(client, store):
    response = await client.ingest({"id": "x", "text": "New.", "metadata": {"tag": ["y", 1, None]}})
    assert response.status_code == 200
    report = response.json()
    assert report["documents"] == {"added": 1, "updated": 0, "unchanged": 0, "failed": 0}
    assert {"packets", "tokens", "raw_bytes", "stored_bytes", "ratio", "elapsed_ms", "errors"} <= (
        report.keys()
    )
    assert store.show("x")["text"] == "New."
    assert store.show("x")["metadata"] == {"tag": ["y", 1, None]}


async def test_sending_again_changes_nothing(client):
    await client.ingest(*numbered(3))
    report = (await client.ingest(*numbered(3))).json()
    assert report["documents"]["unchanged"] == 3
    assert report["packets"]["added"] == 0


async def test_a_document_that_fails_stays_in_the_report(client):
    response = await client.ingest({"id": "i" * 2000, "text": "t"}, {"id": "fine", "text": "Fine."})
    assert response.status_code == 200
    report = response.json()
    assert (report["documents"]["added"], report["documents"]["failed"]) == (1, 1)
    assert report["errors"][0]["error"]


async def test_nothing_to_do_is_done(client):
    assert (await client.ingest()).json()["documents"]["added"] == 0


async def test_as_many_documents_as_allowed_are_filed_at_once_one_more_is_a_job(client):
    assert (await client.ingest(*numbered(16))).status_code == 200
    assert (await client.ingest(*numbered(17))).status_code == 202


@pytest.mark.parametrize("limits", [ServerLimits(ingest_text_bytes=100)])
async def test_text_is_counted_in_utf8_bytes(client):
    assert (await client.ingest({"id": "x", "text": "é" * 50})).status_code == 200
    assert (await client.ingest({"id": "x", "text": "é" * 50 + "e"})).status_code == 202


@pytest.mark.parametrize("limits", [ServerLimits(ingest_body_bytes=200)])
async def test_a_body_beyond_the_limit_is_413_whatever_it_announces(client):
    async def chunks():
        for _ in range(100):
            yield b" " * 50

    headers = {"content-type": "application/json"}
    announced = await client.post("/ingest", content=b"x" * 5000, headers=headers)
    chunked = await client.post("/ingest", content=chunks(), headers=headers)
    for response in (announced, chunked):
        assert response.status_code == 413
        assert response.headers["content-type"] == "application/problem+json"
        assert "200 bytes" in response.json()["detail"]
    assert (await client.ingest({"id": "x", "text": "t"})).status_code == 200


async def test_a_full_store_is_507(client, store, monkeypatch):
    def full(*_, **__):
        raise StoreFullError("the cap of 10 bytes is reached; delete documents")

    monkeypatch.setattr(store.packets, "put_documents", full)
    response = await client.ingest({"id": "x", "text": "t"})
    assert response.status_code == 507
    assert "delete documents" in response.json()["detail"]


async def test_document_text_and_questions_are_in_no_log(store, engine, new_client, caplog):
    caplog.set_level("DEBUG")
    app = create_app(store, engine=engine)
    async with app.router.lifespan_context(app), new_client(app) as client:
        await client.ingest(
            {"id": "x", "text": "SENTINEL one"}, {"id": "x" * 2000, "text": "SENTINEL"}
        )
        await client.ingest({"id": "y", "text": "SENTINEL two", "unknown": "SENTINEL"})
        await client.generate("SENTINEL three?", documents=["x"], max_new_tokens=2)
        await client.generate("SENTINEL four?", documents=["nobody"], stream=True)
    assert "SENTINEL" not in caplog.text
