"""``kvps serve``."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

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


def serve(
    store: Annotated[str, typer.Argument(help="The store's folder.")],
    host: Annotated[str, typer.Option(help="Loopback only, until keys are there.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    memory_bytes: Annotated[int | None, typer.Option(min=0, help=_MEMORY_HELP)] = None,
    audit: Annotated[float, typer.Option(min=0, max=1, metavar="SHARE", help=_AUDIT_HELP)] = 0.0,
    require_verified: Annotated[bool, typer.Option(help=_VERIFIED_HELP)] = False,
    max_running: Annotated[int, typer.Option(min=1, help=_RUNNING_HELP)] = 8,
) -> None:
    """Serve REST: /ingest, /generate, /health, /ready, /metrics, /stats, /ui."""
    # The server is a layer above: it is loaded by name, as an installed entry point would be.
    server = importlib.import_module("kvpacket_store._server")
    limits = server.ServerLimits(running_generations=max_running, running_kv_bytes=memory_bytes)
    server.serve(
        store, host=host, port=port, limits=limits, audit=audit, require_verified=require_verified
    )
