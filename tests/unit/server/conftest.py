"""A small store behind the app, in this process."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import shutil
import socket
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import uvicorn
from kvpacket_store._server import ServerLimits, create_app
from kvpacket_store._server.callers import Caller, Role
from kvpacket_store._server.keys import Key, KeyRing, digest_of

import kvpacket_store as kv
from kvpacket_store.api.exactness import exactness_of

TEXTS = {
    "a": "The lighthouse at Skerry was lit in 1811. Its keeper counted the waves.",
    "b": "A ferry left at noon with eleven passengers and one goat.",
    "c": "Salt, rope and tar were sold at the quay until the flood.",
}


class HashedEmbedder:
    """Deterministic vectors that mean nothing."""

    name = "hashed"
    digest = hashlib.sha256(b"hashed").hexdigest()
    dimension = 16

    def embed(self, texts):
        rows = [np.frombuffer(hashlib.sha256(t.encode()).digest()[:16], np.uint8) for t in texts]
        vectors = np.array(rows, np.float32).reshape(len(texts), 16) + 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class StepGate:
    """Holds every decoding step of a model until it is let through."""

    def __init__(self, row_forward) -> None:
        self._row_forward = row_forward
        self._entered = threading.Semaphore(0)
        self._passes = threading.Semaphore(0)
        self.is_open = False
        self.num_steps = 0

    def row_forward(self):
        run = self._row_forward()

        def held(works):
            self.num_steps += 1
            self._entered.release()
            assert self.is_open or self._passes.acquire(timeout=60), "the test forgot a step"
            return run(works)

        return held

    async def reach_step(self, number: int) -> None:
        """Let steps through until decoding stands inside step ``number``."""
        while True:
            assert await asyncio.to_thread(self._entered.acquire, timeout=60), "no step came"
            if self.num_steps == number:
                return
            self.let_a_step_through()

    def let_a_step_through(self) -> None:
        self._passes.release()

    def open(self) -> None:
        """Hold nothing back any more."""
        self.is_open = True
        self._passes.release(1000)


class Client(httpx.AsyncClient):
    """Speaks to an app in this process."""

    def __init__(self, app) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        super().__init__(transport=transport, base_url="http://kvps")
        self.app = app

    async def generate(self, query="What was lit?", **fields):
        return await self.post("/generate", json={"query": query, **fields})

    async def ingest(self, *documents, **fields):
        return await self.post("/ingest", json={"documents": documents, **fields})

    def key(self, name):
        """Send the key of `key_ring` with this name from now on; None: no key."""
        self.headers.pop("Authorization", None)
        if name is not None:
            self.headers["Authorization"] = f"Bearer SENTINEL key of {name}"
        return self

    async def events(self, query="What was lit?", **fields):
        """Return the (event, data) pairs of a whole stream."""
        response = await self.generate(query, stream=True, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.text.endswith("\n\n")
        return [parse_event(block) for block in response.text.split("\n\n")[:-1]]


def key_ring(**fields):
    """Return keys, by name: ``ann="read a"`` may read namespace ``a``."""
    keys = []
    for name, given in fields.items():
        role, namespace = given.split()
        digest = digest_of(f"SENTINEL key of {name}".encode())
        keys.append(Key(Caller(name, Role[role.upper()], namespace), digest))
    return KeyRing(keys)


@pytest.fixture
def new_keys():
    """A function: ``ann="read a"`` → keys of a server."""
    return key_ring


def parse_event(block):
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return fields.get("event"), json.loads(fields["data"])


@contextmanager
def running_server(app):
    """Serve an app on a free port of loopback; give the server and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # no settings of its own: they would outlive it, and other tests read its log
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def anyio_backend():
    return "asyncio"


@functools.cache
def make_stock(folder, model):
    """Make a store with `TEXTS`, once: tests get copies of it."""
    embedder = HashedEmbedder()
    with kv.Store.create(folder, model=model, segment_tokens=64, embedder=embedder) as store:
        store.ingest([kv.Document(id=i, text=text) for i, text in TEXTS.items()])
    return folder


@pytest.fixture(scope="session")
def stock_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stock") / "s.kvps"


@pytest.fixture
def store(tmp_path, stock_folder, model):
    folder = shutil.copytree(make_stock(stock_folder, model), tmp_path / "s.kvps")
    with kv.Store.open(folder, model=model, embedder=HashedEmbedder()) as store:
        yield store


@pytest.fixture
def engine(store):
    engine = kv.Engine(store)
    engine.assemble("warm up", documents=[])  # the preamble is prefilled once, by whoever is first
    exactness_of(store.model)  # and this is measured once
    return engine


@pytest.fixture
def limits():
    return ServerLimits()


@pytest.fixture
def keys():
    """The keys of the server; it has none."""


@pytest.fixture
async def client(store, engine, limits, keys):
    app = create_app(store, engine=engine, limits=limits, keys=keys)
    async with app.router.lifespan_context(app), Client(app) as client:
        yield client


@pytest.fixture
def new_client():
    """The class of clients, for apps that a test makes itself."""
    return Client


@pytest.fixture
def running():
    """A function: app → a block in which it is served."""
    return running_server


@pytest.fixture
def gate(model, engine, monkeypatch):
    """The model decodes only as far as this lets it."""
    gate = StepGate(model.row_forward)
    monkeypatch.setattr(model, "row_forward", gate.row_forward)
    yield gate
    gate.open()
