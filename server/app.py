"""The composition root: a store in, an ASGI app out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

import kvpacket_store
from kvpacket_store.api import Store
from kvpacket_store.api.audit_totals import checked_share
from kvpacket_store.errors import UsageError

from . import routes_generate, routes_ingest, routes_openai, routes_process, routes_ui
from .authentication import Authentication
from .body_limit import BodyLimit
from .keys import KeyRing
from .limits import ServerLimits
from .problem_responses import answer_errors_with_problems
from .request_log import RequestLog
from .wiring import lifespan_of

if TYPE_CHECKING:
    from kvpacket_store.api import Engine

__all__ = ["create_app"]

_DEFAULT_LIMITS = ServerLimits()


def create_app(
    store: Store,
    *,
    engine: Engine | None = None,
    limits: ServerLimits = _DEFAULT_LIMITS,
    audit: float = 0.0,
    keys: KeyRing | None = None,
    local_names_only: bool = False,
) -> FastAPI:
    """Return the REST app of a store.

    Parameters
    ----------
    store : Store
        Open; the caller closes it after the app has shut down.
    engine : Engine, optional
        Of this store. None: it is loaded in a thread when the app starts, and ``GET /ready`` says
        when it is there.
    limits : ServerLimits
        How much to take on at once.
    audit : float
        Share of answers that are compared with a joint prefill, where the engine is loaded here:
        see `Engine`.
    keys : KeyRing, optional
        Who may ask, and whose documents about; see `read_keys`. None: anybody may do everything,
        which is for loopback.
    local_names_only : bool
        Refuse requests to other hosts than ``localhost`` and loopback addresses: without keys, a
        web page whose name comes to mean this machine could ask everything.

    Raises
    ------
    UsageError
        The engine is another store's, or has an auditor of its own; the share is none.

    Examples
    --------
    ::

        with Store.open("corpus.kvps") as store:
            uvicorn.run(create_app(store))
    """
    if engine is not None and engine.store is not store:
        raise UsageError("the engine belongs to another store; make one for this store")
    if engine is not None and audit:
        raise UsageError("audit is for an engine that is loaded here; take Engine(store, audit=…)")
    app = FastAPI(
        title="kvpacket-store",
        version=kvpacket_store.__version__,
        lifespan=lifespan_of(store, engine, limits, checked_share(audit)),
        docs_url=None,  # these pages load scripts from elsewhere; /openapi.json stays
        redoc_url=None,
    )
    app.add_middleware(BodyLimit, limit_bytes=limits.body_bytes, timeout_s=limits.body_timeout_s)
    app.add_middleware(Authentication, keys=keys, local_names_only=local_names_only)
    app.add_middleware(RequestLog)  # the last one is the outermost
    answer_errors_with_problems(app)
    for routes in (
        routes_process,
        routes_ingest,
        routes_generate,
        routes_openai,
        routes_ui,
    ):
        app.include_router(routes.router)
    return app
