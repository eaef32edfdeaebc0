"""``kvps serve``."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    store: Annotated[str, typer.Argument(help="The store's folder.")],
    host: Annotated[str, typer.Option(help="Loopback only, until keys are there.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
) -> None:
    """Serve REST: /ingest, /generate, /health, /ready."""
    # The server is a layer above: it is loaded by name, as an installed entry point would be.
    importlib.import_module("kvpacket_store._server").serve(store, host=host, port=port)
