"""``kvps serve``."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Annotated

import typer

from kvpacket_store.cli.output import err, plain
from kvpacket_store.errors import UsageError

__all__ = ["serve"]

_MEMORY_HELP = (
    "Most bytes of K and V of the requests that run: others wait, one always runs. Requests that "
    "draft on the base of packets then read their exact K and V anew for every verification. "
    "Without it all that run keep theirs."
)
_AUDIT_HELP = (
    "Share of answers, 0 to 1, that are compared with a prefill of the whole prompt once they are "
    "given. Each costs that prefill, and its memory, and the others stand still meanwhile. "
    "With --memory-bytes, answers drafted on a base are passed over."
)
_VERIFIED_HELP = (
    "Refuse a store whose model and adapter have no sound quality report "
    "(kvps adapter eval --store). It costs nothing."
)
_RUNNING_HELP = (
    "Most requests that are decoded at once. They share each pass over the weights; each holds K "
    "and V, and makes the others' steps a little longer."
)


_KEYS_HELP = (
    "The file of keys, a line a key: name role namespace sha256-of-key; the roles are read, write "
    "and admin. With it everything but /health, /ready and /version takes a key, which says whose "
    "documents are meant."
)
_NEW_KEY_HELP = (
    "Print a new key, once, and append its line to the file of --api-keys, which is made where "
    "there is none. Nothing is served."
)
_TIMEOUT_HELP = (
    "Longest an answer may take, waiting included; it is stopped then, and answered 504."
)
_SHUTDOWN_HELP = "Longest that what runs may go on after SIGTERM or Ctrl-C."


def serve(
    store: Annotated[str | None, typer.Argument(help="The store's folder.")] = None,
    host: Annotated[str, typer.Option(help="Other than loopback takes keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    api_keys: Annotated[str | None, typer.Option(metavar="FILE", help=_KEYS_HELP)] = None,
    new_key: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="NAME ROLE NAMESPACE", help=_NEW_KEY_HELP),
    ] = None,
    memory_bytes: Annotated[int | None, typer.Option(min=0, help=_MEMORY_HELP)] = None,
    audit: Annotated[float, typer.Option(min=0, max=1, metavar="SHARE", help=_AUDIT_HELP)] = 0.0,
    require_verified: Annotated[bool, typer.Option(help=_VERIFIED_HELP)] = False,
    max_running: Annotated[int, typer.Option(min=1, help=_RUNNING_HELP)] = 8,
    max_waiting: Annotated[int, typer.Option(min=0, help="Most that wait beside them.")] = 32,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most of one answer.")] = 4096,
    request_timeout_s: Annotated[float, typer.Option(min=0.001, help=_TIMEOUT_HELP)] = 600.0,
    shutdown_s: Annotated[float, typer.Option(min=0, help=_SHUTDOWN_HELP)] = 30.0,
    log_json: Annotated[bool, typer.Option(help="Each line of the log is JSON.")] = False,
) -> None:
    """Serve REST: /ingest, /generate, /health, /ready, /metrics, /stats, /ui."""
    # The server is a layer above: it is loaded by name, as an installed entry point would be.
    server = importlib.import_module("kvpacket_store._server")
    if new_key is not None:
        _print_new_key(server, api_keys, new_key)
        return
    if store is None:
        raise UsageError("which store? `kvps serve STORE`")
    limits = server.ServerLimits(
        running_generations=max_running,
        waiting_generations=max_waiting,
        waiting_generations_of_key=(max_waiting + 1) // 2,
        running_kv_bytes=memory_bytes,
        max_new_tokens=max_new_tokens,
        request_timeout_s=request_timeout_s,
        shutdown_s=shutdown_s,
    )
    server.serve(
        store,
        host=host,
        port=port,
        limits=limits,
        audit=audit,
        require_verified=require_verified,
        api_keys=api_keys,
        log_json=log_json,
    )


def _print_new_key(server: ModuleType, path: str | None, fields: tuple[str, str, str]) -> None:
    if path is None:
        raise UsageError(
            "to which file? `kvps serve --api-keys FILE --new-key NAME ROLE NAMESPACE`"
        )
    key = server.add_key(path, *fields)
    err.print(
        plain(f"The key of {fields[0]}; it is not kept anywhere, and will not be shown again:")
    )
    sys.stdout.write(f"{key}\n")
