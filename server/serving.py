"""A store behind a port."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from kvpacket_store.api import Store
from kvpacket_store.api.quality_gate import check_verified
from kvpacket_store.errors import UsageError

from .app import create_app
from .limits import ServerLimits

__all__ = ["serve"]

_log = logging.getLogger("uvicorn.error")  # despite its name, where uvicorn says what it does
_LAST_PORT = 65_535
_DEFAULT_LIMITS = ServerLimits()


def serve(
    store_path: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    limits: ServerLimits = _DEFAULT_LIMITS,
    audit: float = 0.0,
    require_verified: bool = False,
) -> None:
    """Serve a store until SIGINT or SIGTERM; requests that run then are finished first.

    Parameters
    ----------
    store_path : str or Path
        The store's folder.
    host : str
        A loopback address.
    port : int
        0 takes a free one; the log names it.
    limits, audit
        See `create_app`.
    require_verified : bool
        Serve only if a quality report of the store's model and adapter was recorded.

    Raises
    ------
    UsageError
        ``host`` is not loopback, the port is taken, or ``audit`` is no share.
    NotFoundError
        There is no store.
    QualityError
        The pair is unverified; run `kvps adapter eval --store`.
    """
    _require_loopback(host)
    with (
        Store.open(store_path) as store,
        _listening(host, port) as listener,
        _sigterm_as_interrupt(),
        suppress(KeyboardInterrupt),
    ):
        check_verified(store, required=require_verified)
        app = create_app(store, limits=limits, audit=audit)
        server = uvicorn.Server(uvicorn.Config(app))
        _log.info("Serving %s on %s (Ctrl-C ends it)", store_path, _url(listener))
        server.run(sockets=[listener])


def _require_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise UsageError(
            f"host {host!r} is not loopback: other machines could reach it. That needs API keys, "
            "which come with a later version; take 127.0.0.1"
        )


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"port is {port}; take one from 1 to {_LAST_PORT}, or 0 for a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error}; take another") from error
    with listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let the caller clean up after SIGTERM: uvicorn shuts down, then raises the signal again."""
    if threading.current_thread() is not threading.main_thread():  # signals go elsewhere
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
