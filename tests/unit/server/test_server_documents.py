"""Documents by id, whatever the id; a page at a time; absent and foreign ones are alike."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from kvpacket_store._server import create_app

pytestmark = pytest.mark.anyio

ODD_IDS = [
    "a/b",
    "/a",
    "a/",
    "..",
    "../../etc/passwd",
    ".",
    "é ü/日本語",
    "e\u0301",
    "line\nend",
    "end\n",
    "100%",
    "%2F",
    "a?b#c",
    "a+b",
    "\ufffd",
    "\x7f\x01",
]


def path_of(document_id):
    # clients take `..` away themselves, unless it is encoded
    return "/documents/" + quote(document_id, safe="").replace(".", "%2E")


async def test_a_document_is_as_a_listing_has_it(client, store):
    response = await client.get("/documents/a")
    assert response.status_code == 200
    [entry] = [d for d in store.list().to_dict()["documents"] if d["id"] == "a"]
    assert response.json() == entry
    assert (await client.get("/documents/a?text=true")).json() == store.show("a")


@pytest.mark.parametrize("document_id", ODD_IDS)
async def test_an_id_is_data_and_never_a_path(client, document_id):
    await client.ingest({"id": document_id, "text": "Odd."}, {"id": "end", "text": "Even."})
    shown = await client.get(path_of(document_id) + "?text=true")
    assert (shown.json()["id"], shown.json()["text"]) == (document_id, "Odd.")
    deleted = await client.delete(path_of(document_id))
    assert deleted.json() == {"deleted": [document_id], "absent": []}
    assert (await client.get(path_of(document_id))).status_code == 404
    assert (await client.get("/documents/end")).status_code == 200


async def test_the_same_over_a_socket(store, engine, running):
    app = create_app(store, engine=engine)
    with running(app) as (_, url), httpx.Client(base_url=url) as client:
        documents = [{"id": i, "text": "Odd."} for i in ODD_IDS]
        assert client.post("/ingest", json={"documents": documents}).status_code == 200
        assert [client.get(path_of(i)).json()["id"] for i in ODD_IDS] == ODD_IDS


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_bytes_that_are_no_text_are_nobodys_id(client, store, method):
    await client.ingest({"id": "\ufffd", "text": "Odd."})
    assert (await client.request(method, "/documents/%ff")).status_code == 404
    assert store.show("\ufffd")["text"] == "Odd."


@pytest.mark.parametrize(
    ("path", "status"),
    [("/documents/nobody", 404), ("/documents/", 422), (path_of("x" * 3000), 422)],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_is_not_there_is_404_and_what_is_no_id_422(client, method, path, status):
    response = await client.request(method, path)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_pages_follow_each_other(client):
    await client.ingest(*[{"id": f"d{i}", "text": f"Text {i}."} for i in range(5)])
    ids, after = [], None
    while True:
        params = {"limit": 3} | ({} if after is None else {"after": after})
        page = (await client.get("/documents", params=params)).json()
        assert len(page["documents"]) <= 3
        ids += [document["id"] for document in page["documents"]]
        after = page["next"]
        if after is None:
            break
    assert ids == ["a", "b", "c", "d0", "d1", "d2", "d3", "d4"]


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001"])
async def test_a_limit_that_is_none_is_422(client, query):
    assert (await client.get(f"/documents?{query}")).status_code == 422


async def test_anothers_document_is_answered_as_an_absent_one(store, engine, new_keys, new_client):
    app = create_app(store, engine=engine, keys=new_keys(bob="admin b", reader="read default"))
    async with app.router.lifespan_context(app), new_client(app) as client:
        client.key("bob")
        assert (await client.get("/documents")).json()["documents"] == []
        foreign = [await client.request(m, "/documents/a") for m in ("GET", "DELETE")]
        store.delete("a")
        absent = [await client.request(m, "/documents/a") for m in ("GET", "DELETE")]
        for one, other in zip(foreign, absent, strict=True):
            assert one.status_code == other.status_code == 404
            assert one.content == other.content
        client.key("reader")
        assert (await client.delete("/documents/b")).status_code == 403
        assert (await client.get("/documents/b")).status_code == 200
        named = await client.get("/documents/b?namespace=b")
        assert named.status_code == 422


async def test_without_keys_the_namespace_is_asked_for(client):
    await client.ingest({"id": "own", "text": "Own."}, namespace="n")
    assert (await client.get("/documents/own?namespace=n")).status_code == 200
    assert (await client.get("/documents/own")).status_code == 404
    listed = (await client.get("/documents?namespace=n")).json()
    assert [document["id"] for document in listed["documents"]] == ["own"]
    assert (await client.get("/documents?namespace=nobody")).status_code == 404
