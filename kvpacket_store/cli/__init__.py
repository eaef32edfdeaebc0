"""The command line: ``kvps``. Thin: each command calls the façade and prints what it reports."""

from kvpacket_store.cli.main import main

__all__ = ["main"]
