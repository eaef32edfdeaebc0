"""A client that leaves stops its decoding within one step, streaming or not, waiting or running."""

from __future__ import annotations

import asyncio
import json

import pytest

pytestmark = pytest.mark.anyio
LONG = {"query": "q", "documents": ["a"], "max_new_tokens": 200, "ignore_eos": True}


class Call:
    """One request as a server would hand it to the app, with a client that can leave."""

    def __init__(self, app, body, spec_version="2.3"):
        self._app, self._spec_version = app, spec_version
        self._to_receive = asyncio.Queue()
        self._to_receive.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        self.sent = []
        self.is_lost = False
        self.task = asyncio.create_task(self._run())

    async def _run(self):
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": self._spec_version},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/generate",
            "raw_path": b"/generate",
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"kvps"), (b"content-type", b"application/json")],
            "client": None,
            "server": None,
        }
        await self._app(scope, self._to_receive.get, self._send)

    async def _send(self, message):
        if self.is_lost:
            raise OSError("connection lost")
        self.sent.append(message)

    def leave(self):
        self._to_receive.put_nowait({"type": "http.disconnect"})

    @property
    def status(self):
        return self.sent[0]["status"] if self.sent else None


@pytest.fixture
def cancels(engine, monkeypatch):
    """The cancel events that the engine was given, in order."""
    given, begin = [], engine.begin

    def spied(query, options, timings, cancel, policy):
        given.append(cancel)
        return begin(query, options, timings, cancel, policy)

    monkeypatch.setattr(engine, "begin", spied)
    return given


async def is_set(event):
    return await asyncio.to_thread(event.wait, 60)


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_step_follows_the_one_in_which_the_client_left(
    client, gate, cancels, stream, spec_version
):
    call = Call(client.app, {**LONG, "stream": stream}, spec_version)
    await gate.reach_step(3)
    call.leave()
    assert await is_set(cancels[0])
    gate.open()
    await asyncio.wait_for(asyncio.gather(call.task, return_exceptions=True), 60)
    assert gate.num_steps == 3
    after = await client.generate(documents=["a"], max_new_tokens=1)
    assert after.status_code == 200


async def test_a_streaming_client_that_left_gets_nothing_more(client, gate, cancels):
    call = Call(client.app, {**LONG, "stream": True})
    await gate.reach_step(6)
    assert call.status == 200
    call.leave()
    assert await is_set(cancels[0])
    gate.open()
    await call.task
    assert b"answer" not in b"".join(message.get("body", b"") for message in call.sent)


async def test_a_client_that_leaves_the_queue_is_never_asked_about(client, gate, cancels):
    running = asyncio.create_task(
        client.generate(documents=["a"], max_new_tokens=3, ignore_eos=True)
    )
    await gate.reach_step(1)
    generations = client.app.state.services.generations
    waiting = [Call(client.app, {**LONG, "stream": stream}) for stream in (False, True)]
    while generations.num_waiting < 2:
        await asyncio.sleep(0)
    for call in waiting:
        call.leave()
        await call.task
        assert call.status == 499
    assert generations.num_waiting == 0
    gate.open()
    assert (await running).status_code == 200
    assert len(cancels) == 1


async def test_those_that_stay_get_their_answers_when_one_leaves_amid_them(client, gate, cancels):
    asked = {"documents": ["a"], "max_new_tokens": 20, "ignore_eos": True, "temperature": 0.9}
    staying = [asyncio.create_task(client.generate(**asked, seed=seed)) for seed in (1, 2)]
    leaving = Call(client.app, {**LONG, "stream": True})
    generations = client.app.state.services.generations
    while generations.num_running < 3:
        gate.let_a_step_through()
        await asyncio.sleep(0.01)
    leaving.leave()
    while not any(cancel.is_set() for cancel in cancels):
        await asyncio.sleep(0.01)
    gate.open()
    together = [(await task).json()["token_ids"] for task in staying]
    await leaving.task
    assert b"answer" not in b"".join(message.get("body", b"") for message in leaving.sent)
    alone = [(await client.generate(**asked, seed=seed)).json()["token_ids"] for seed in (1, 2)]
    assert together == alone


async def test_a_send_that_fails_stops_the_decoding(client, gate, cancels):
    """Servers of ASGI 2.4 tell a lost connection by an error of ``send``."""
    call = Call(client.app, {**LONG, "stream": True}, "2.4")
    await gate.reach_step(2)
    call.is_lost = True
    while not cancels[0].is_set():
        gate.let_a_step_through()
        await asyncio.sleep(0.01)
    gate.open()
    await call.task
    assert gate.num_steps < LONG["max_new_tokens"] - 1


async def test_a_client_that_stays_gets_the_whole_answer(client, gate, cancels):
    gate.open()
    call = Call(client.app, {**LONG, "max_new_tokens": 5, "stream": True})
    await call.task
    assert gate.num_steps == 4
    assert b'"usage"' in call.sent[-2]["body"]
