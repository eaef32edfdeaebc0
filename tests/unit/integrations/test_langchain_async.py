"""The chat model on an event loop: it never waits, and stops what it has begun."""

import asyncio
import threading

import pytest
from langchain_core.documents import Document as LCDocument

from kvpacket_store.errors import CancelledError, UsageError
from kvpacket_store.integrations.background import in_background, stopped_after
from kvpacket_store.integrations.langchain import ChatKVPacket, KVPacketRetriever

pytestmark = pytest.mark.anyio
QUESTION = "Where does the Rhine rise?"


@pytest.fixture
def chat(engine):
    return ChatKVPacket(engine=engine, max_tokens=8, options={"ignore_eos": True})


@pytest.fixture
def held(engine, monkeypatch):
    """Let a decoding stop after its first piece: set `gate` to let it go on."""

    class Held:
        gate, begun, ended = threading.Event(), threading.Event(), threading.Event()
        cancel = None

    stream = engine.stream

    def slow(*args, cancel, **options):
        Held.cancel = cancel
        try:
            for piece in stream(*args, cancel=cancel, **options):
                yield piece
                Held.begun.set()
                while not (Held.gate.is_set() or cancel.is_set()):
                    Held.gate.wait(0.01)
        finally:
            Held.ended.set()

    monkeypatch.setattr(engine, "stream", slow)
    return Held


async def test_it_answers_as_without_a_loop(chat, engine):
    documents = [LCDocument("The Rhine rises in the Alps."), "oxygen"]
    whole = chat.invoke(QUESTION, documents=documents)
    assert (await chat.ainvoke(QUESTION, documents=documents)).content == whole.content
    chunks = [chunk async for chunk in chat.astream(QUESTION, documents=documents)]
    assert "".join(chunk.content for chunk in chunks) == whole.content
    many = await chat.abatch([QUESTION, "And oxygen?"], documents=documents)
    assert many[0].content == whole.content
    assert many[1].content == chat.invoke("And oxygen?", documents=documents).content
    own = chat.model_copy(update={"retriever": KVPacketRetriever(engine=engine, k=1)})
    assert (await own.ainvoke(QUESTION)).content == own.invoke(QUESTION).content


async def test_errors_come_as_they_are(chat):
    with pytest.raises(UsageError, match="unknown options"):
        await chat.ainvoke(QUESTION, tempo=1)


async def test_the_loop_goes_on_while_it_decodes(chat, held):
    task = asyncio.create_task(chat.ainvoke(QUESTION, documents=["rhine"]))
    while not held.begun.is_set():  # only a loop that is free comes round again
        await asyncio.sleep(0)
    assert not task.done()
    held.gate.set()
    assert (await task).content


async def test_a_cancelled_task_stops_decoding_before_it_ends(chat, held):
    task = asyncio.create_task(chat.ainvoke(QUESTION, documents=["rhine"]))
    while not held.begun.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held.ended.is_set()
    assert held.cancel.is_set()


async def test_leaving_a_stream_stops_decoding(chat, held):
    stream = chat.astream(QUESTION, documents=["rhine"])
    await anext(stream)
    await stream.aclose()
    while not held.ended.is_set():
        await asyncio.sleep(0)
    assert held.cancel.is_set()


async def test_late_answers_are_a_timeout(chat, held):
    late = chat.model_copy(update={"timeout": 0.05})
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        await late.ainvoke(QUESTION, documents=["rhine"])
    with pytest.raises(TimeoutError):
        chat.invoke(QUESTION, documents=["rhine"], timeout=0.05)
    held.gate.set()
    assert chat.invoke(QUESTION, documents=["rhine"], timeout=600).content


def test_being_cancelled_is_no_timeout():
    def run(cancel):
        raise CancelledError("somebody else did")
        yield

    with pytest.raises(CancelledError, match="somebody else"):
        list(stopped_after(600, run, threading.Event()))


async def test_what_fails_on_the_thread_is_raised_after_what_came_before():
    def run(cancel):
        yield 1
        raise ValueError("then")

    given = in_background(run)
    assert await anext(given) == 1
    with pytest.raises(ValueError, match="then"):
        await anext(given)
