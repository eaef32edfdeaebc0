"""Server-sent events: pieces, then the whole answer; errors with a status or as an event."""

from __future__ import annotations

import pytest

from kvpacket_store.api import Piece
from kvpacket_store.errors import CodecError, StoreLockedError

pytestmark = pytest.mark.anyio
ASKED = {"documents": ["a", "b"], "max_new_tokens": 24, "ignore_eos": True}


async def test_the_pieces_make_up_the_answer(client, engine):
    events = await client.events(**ASKED)
    expected = engine.generate("What was lit?", **ASKED)
    *pieces, (name, answer) = events
    assert name is None
    assert len(pieces) > 1
    assert all(event is None and [*data] == ["text"] and data["text"] for event, data in pieces)
    assert "".join(data["text"] for _, data in pieces) == expected.text == answer["answer"]
    assert answer.keys() == expected.to_dict().keys()
    assert answer["usage"] == expected.usage.to_dict()


@pytest.fixture
def scripted(monkeypatch):
    """A function: from now on decodings give these pieces, whatever their tokens; errors raise."""

    def script(*given):
        class Scripted:
            is_stopped = False

            def __init__(self, request, begun, tokenizer):
                self._given = iter(given)

            def push(self, event):
                piece = next(self._given)
                if isinstance(piece, Exception):
                    raise piece
                return piece

            def finish(self):
                return next(self._given)

        monkeypatch.setattr("kvpacket_store.api.running.AnswerPieces", Scripted)

    return script


async def test_pieces_with_line_breaks_stay_one_event_each(client, engine, scripted):
    answer = engine.generate("q", ["a"], max_new_tokens=1)
    texts = ["one\ntwo", "\r\n\r\n", "data: no", "☃\u2028"]
    scripted(*map(Piece, texts), Piece("", answer))
    events = await client.events(documents=["a"], max_new_tokens=4, ignore_eos=True)
    assert [data["text"] for _, data in events[:-1]] == texts
    assert events[-1][1]["answer"] == answer.text


async def test_nothing_keeps_the_stream(client):
    response = await client.generate(stream=True, **ASKED)
    assert response.headers["cache-control"] == "no-store"
    assert "content-length" not in response.headers


@pytest.mark.parametrize(
    ("error", "status", "is_told"),
    [
        (StoreLockedError("another process holds it"), 503, True),
        (CodecError("plane 3 of secret.bin"), 500, False),
        (ZeroDivisionError("secret"), 500, False),
        (OSError("secret"), 500, False),
    ],
)
async def test_an_error_in_mid_stream_is_an_event(client, scripted, error, status, is_told):
    scripted(Piece("so far"), error)
    (_, first), (name, problem) = await client.events(**ASKED)
    assert first == {"text": "so far"}
    assert name == "error"
    assert problem["status"] == status
    assert (str(error) in problem["detail"]) is is_told
    assert "secret" not in str(problem)


async def test_an_error_before_the_first_piece_has_its_status(client, engine, monkeypatch):
    def begin(*_):
        raise StoreLockedError("another process holds it")

    monkeypatch.setattr(engine, "begin", begin)
    response = await client.generate(stream=True)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    assert int(response.headers["retry-after"]) > 0
