"""`POST /generate` drafts by name; what is provisional is an event of its own, and no answer."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio
ASKED = {"documents": ["a", "b"], "max_new_tokens": 24, "ignore_eos": True}
DRAFTED = {**ASKED, "decode": "verified", "compressor": "snapkv:0.25*int8", "draft_tokens": 4}


def final(events):
    return "".join(data["text"] for name, data in events[:-1] if name is None)


def provisional(events):
    return [data["text"] for name, data in events if name == "provisional"]


@pytest.mark.parametrize("compressor", [None, "int8", "snapkv:0.25", "lookup", "lookup+int4"])
async def test_a_draft_by_name_gives_the_same_answer(client, compressor):
    plain = (await client.generate(**ASKED, decode="full")).json()
    drafted = (await client.generate(**(DRAFTED | {"compressor": compressor}))).json()
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["answer"] == plain["answer"]
    assert drafted["decode"]["mode"] == "verified"
    assert drafted["decode"]["rounds"] > 0


async def test_a_stream_of_a_verified_answer_is_the_same_text(client, engine):
    events = await client.events(**DRAFTED)
    expected = engine.generate("What was lit?", **ASKED, decode="full")
    assert provisional(events) == []
    assert final(events) == expected.text == events[-1][1]["answer"]
    assert events[-1][1]["token_ids"] == expected.token_ids


async def test_provisional_text_is_an_event_of_its_own_and_changes_no_other(client):
    without = await client.events(**DRAFTED)
    events = await client.events(**DRAFTED, provisional=True)
    drafts = provisional(events)
    assert drafts
    assert all(drafts)
    assert [event for event in events[:-1] if event[0] is None] == without[:-1]
    assert events[-1][0] is None
    assert events[-1][1]["token_ids"] == without[-1][1]["token_ids"]


@pytest.mark.parametrize("fields", [{"decode": "full"}, {"stream": False}])
async def test_where_nothing_is_drafted_or_streamed_it_changes_nothing(client, fields):
    asked = {**ASKED, "provisional": True}
    if fields.get("stream") is False:
        response = await client.generate(**asked, **fields)
        assert response.json()["usage"]["completion_tokens"] == 24
    else:
        assert provisional(await client.events(**asked, **fields)) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"compressor": "nonsense"},
        {"compressor": "snapkv:25"},
        {"compressor": "int8*int4"},
        {"compressor": ""},
        {"compressor": "x" * 500},
        {"compressor": 8},
        {"draft_tokens": 0},
        {"draft_tokens": 65},
        {"draft_tokens": 2.5},
        {"draft_tokens": "4"},
        {"provisional": "yes"},
    ],
)
async def test_what_cannot_be_drafted_is_422(client, fields, stream):
    response = await client.generate(**ASKED, **fields, stream=stream)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
