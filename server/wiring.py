"""What routes work with, and how it comes up and goes down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Request

from kvpacket_store.api import Store
from kvpacket_store.errors import KVPacketError, ModelError

from .gauges import Gauges
from .generations import Generations
from .idempotency import Idempotency
from .jobs import Jobs
from .limits import ServerLimits
from .metrics import Metrics
from .refusals import ShuttingDownError
from .worker import WorkerPool

if TYPE_CHECKING:
    from kvpacket_store.api import Engine
    from kvpacket_store.api.exactness import Exactness

__all__ = ["Services", "ServicesOfRequest", "lifespan_of"]

_log = logging.getLogger("kvpacket_store.server")


class Services:
    """A store, its engine once that is loaded, and the threads that do the work."""

    def __init__(
        self, store: Store, engine: Engine | None, limits: ServerLimits, audit: float
    ) -> None:
        self.store = store
        self.limits = limits
        self.metrics = Metrics()
        self.ingests = WorkerPool(
            "ingest",
            running=limits.running_ingests,
            waiting=limits.waiting_ingests,
            waiting_of_key=limits.waiting_ingests_of_key,
        )
        self.jobs = Jobs(store, limits, self.metrics)
        self.idempotency = Idempotency(store.packets, limits.kept_answers)
        self.lookups = WorkerPool(
            "document", running=limits.running_lookups, waiting=limits.waiting_lookups
        )
        self.prefetches = WorkerPool("prefetch", running=1, waiting=limits.waiting_prefetches)
        self.reports = WorkerPool("stats", running=1, waiting=limits.waiting_reports)
        self.embeddings = WorkerPool("embedding", running=1, waiting=limits.waiting_embeddings)
        self.loaded = asyncio.Event()  # or given up: `engine` tells which
        self.exactness: Exactness | None = None
        self._audit = audit
        self._engine = engine
        self._generations: Generations | None = None
        if engine is not None:
            self._generations = Generations(engine, limits, self.metrics)
        self._why_not = "the model is still loading; try again in a few seconds"
        self._is_shutting_down = False

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises
        ------
        ModelError
            It is not loaded yet, or cannot be.
        """
        if self._engine is None:
            raise ModelError(self._why_not)
        return self._engine

    @property
    def generations(self) -> Generations:
        """What answers.

        Raises
        ------
        ModelError
            The engine is not loaded yet, or cannot be.
        ShuttingDownError
            It is not loaded, and never will be.
        """
        if self._generations is None:
            error = ShuttingDownError() if self._is_shutting_down else ModelError(self._why_not)
            self.metrics.count_failed(error)
            raise error
        return self._generations

    async def load(self) -> None:
        """Load the engine in a thread; what goes wrong is kept for those who ask."""
        try:
            engine = self._engine
            if engine is None:
                engine = await asyncio.to_thread(_warm_engine, self.store, self._audit)
            exactness, promises = await asyncio.to_thread(_exactness, engine)
            if self._generations is None:
                self._generations = Generations(engine, self.limits, self.metrics)
            if self._is_shutting_down:
                self._generations.drain()
            gauges = Gauges(engine, exactness, promises, self._generations)
            self.metrics.registry.register(gauges)
            self.exactness, self._engine = exactness, engine
        except KVPacketError as error:
            self._why_not = f"the model cannot be used: {error}"
            _log.error("%s", self._why_not)
        except Exception as error:
            self._why_not = "the model cannot be loaded; the server's log says why"
            _log.exception("the model cannot be loaded: %s", error)
        if self._engine is not None:
            await self._resume_jobs()
        self.loaded.set()

    async def _resume_jobs(self) -> None:
        """Take up the jobs that another server left; requests are served where that fails."""
        try:
            await self.jobs.resume()
        except Exception as error:
            _log.exception("the jobs that are kept cannot be taken up: %s", error)

    async def reasons_not_ready(self) -> list[str]:
        """Return why requests would fail now; empty where they would not."""
        if self._is_shutting_down:
            return ["the server is shutting down"]
        reasons = [] if self._engine is not None else [self._why_not]
        try:
            await asyncio.to_thread(self.store.packets.count)
        except KVPacketError as error:
            reasons.append(str(error))
        return reasons

    def begin_shutdown(self) -> None:
        """Begin nothing any more; what runs may finish, for a while. For the event loop."""
        self._is_shutting_down = True
        if self._generations is not None:
            self._generations.drain()
        for pool in (self.ingests, self.lookups, self.reports, self.embeddings):
            pool.drain()
        self.jobs.stop()
        self.prefetches.stop()

    async def close(self) -> None:
        """Let what runs finish."""
        self.begin_shutdown()
        if self._generations is not None:
            await self._generations.close()
        await self.ingests.close()
        await self.jobs.close()
        await self.prefetches.close()
        await self.lookups.close()
        await self.reports.close()
        await self.embeddings.close()


def _warm_engine(store: Store, audit: float) -> Engine:
    """Load everything that the first request would wait for, torch to begin with."""
    from kvpacket_store.api import Engine

    engine = Engine(store, audit=audit)
    engine.assemble("warm up", documents=[], max_new_tokens=1)
    store.embedder.embed(["warm up"])
    return engine


def _exactness(engine: Engine) -> tuple[Exactness, dict[str, bool]]:
    """Measure what verifying on this machine can promise; it warms up what decodes, too."""
    from kvpacket_store.api.exactness import exactness_of, promises_of

    return exactness_of(engine.store.model), promises_of(engine.store.model)


def lifespan_of(
    store: Store, engine: Engine | None, limits: ServerLimits, audit: float
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the app's lifespan: it starts at once and loads meanwhile."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = Services(store, engine, limits, audit)
        app.state.services = services
        loading = asyncio.create_task(services.load())
        try:
            yield
        finally:
            await loading  # a thread cannot be stopped, and the store must outlive it
            await services.close()

    return lifespan


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesOfRequest = Annotated[Services, Depends(_services)]
