"""A store behind a port."""

from __future__ import annotations

import logging.config
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvpacket_store.api import Store
from kvpacket_store.api.quality_gate import check_verified
from kvpacket_store.errors import UsageError

from .app import create_app
from .graceful import new_server
from .key_file import read_keys, warn_of_other_readers
from .limits import ServerLimits
from .logs import log_config
from .loopback import is_loopback

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
    api_keys: str | Path | None = None,
    log_json: bool = False,
) -> None:
    """Serve a store until SIGINT or SIGTERM.

    Requests that run then are finished, for as long as ``limits.shutdown_s``; those that wait are
    answered 503. The log goes to stderr.

    Parameters
    ----------
    store_path : str or Path
        The store's folder.
    host : str
        Where to listen. Any other than a loopback address takes keys.
    port : int
        0 takes a free one; the log names it.
    limits, audit
        See `create_app`.
    require_verified : bool
        Serve only if a quality report of the store's model and adapter was recorded.
    api_keys : str or Path, optional
        The file of keys, read once; see `read_keys`.
    log_json : bool
        Each line of the log is a JSON object.

    Raises
    ------
    UsageError
        ``host`` is not loopback and there are no keys, the key file cannot be used, the port is
        taken, or ``audit`` is no share.
    NotFoundError
        There is no store.
    QualityError
        The pair is unverified; run `kvps adapter eval --store`.
    """
    if api_keys is None:
        _require_loopback(host)
    keys = None if api_keys is None else read_keys(api_keys)
    with (
        Store.open(store_path) as store,
        _listening(host, port) as listener,
        _sigterm_as_interrupt(),
        suppress(KeyboardInterrupt),
    ):
        logging.config.dictConfig(log_config(log_json))
        if api_keys is not None:
            warn_of_other_readers(api_keys)
        check_verified(store, required=require_verified)
        app = create_app(
            store, limits=limits, audit=audit, keys=keys, local_names_only=keys is None
        )
        server = new_server(app, limits)
        _log.info("Serving %s on %s (Ctrl-C ends it)", store_path, _url(listener))
        server.run(sockets=[listener])


def _require_loopback(host: str) -> None:
    if not is_loopback(host):
        raise UsageError(
            f"host {host!r} is not loopback: other machines could reach it. Take 127.0.0.1, or "
            "keys: `kvps serve --api-keys FILE`"
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
