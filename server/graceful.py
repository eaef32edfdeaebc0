"""A server that ends in order: who runs may finish, who waits is told, nobody new comes in."""

from __future__ import annotations

import math
import socket

import uvicorn
from fastapi import FastAPI

from .limits import ServerLimits

__all__ = ["new_server"]

_CLEARING_S = 5  # after the limit: one step, and the answers that tell of it


class _GracefulServer(uvicorn.Server):
    """Tells the app before it waits for the connections, not after."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the app, close the port, wait for what runs."""
        services = getattr(self._app.state, "services", None)
        if services is not None:
            services.begin_shutdown()
        await super().shutdown(sockets)


def new_server(app: FastAPI, limits: ServerLimits) -> uvicorn.Server:
    """Return a server of an app of `create_app`. Logging is left as it is.

    uvicorn's own access log is off: it has paths, which have ids in them.
    """
    return _GracefulServer(
        app,
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=math.ceil(limits.shutdown_s) + _CLEARING_S,
        ),
    )
