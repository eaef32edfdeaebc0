"""The commands, and what an error means for the shell."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from typing import Annotated

import typer

from kvpacket_store import __version__
from kvpacket_store.cli import (
    adapter,
    ask,
    bench,
    codec,
    doctor,
    documents,
    importance,
    init,
    serve,
    upkeep,
)
from kvpacket_store.cli.output import fail
from kvpacket_store.errors import KVPacketError

__all__ = ["app", "main"]

app = typer.Typer(
    name="kvps",
    help="Prefill every document once, offline; answer from packets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvps {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    del version  # its callback has answered


app.command("init")(init.init)
app.command("ingest")(documents.ingest)
app.command("ask")(ask.ask)
app.command("list")(documents.list_documents)
app.command("show")(documents.show)
app.command("delete")(documents.delete)
app.command("stats")(documents.stats)
app.command("verify")(upkeep.verify)
app.command("gc")(upkeep.gc)
app.command("compact")(upkeep.compact)
app.command("pin")(upkeep.pin)
app.command("unpin")(upkeep.unpin)
app.command("export")(upkeep.export)
app.command("import")(upkeep.import_)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("fit-importance")(importance.fit_importance)
app.add_typer(bench.app, name="bench")
app.add_typer(codec.app, name="codec")
app.add_typer(adapter.adapter_app, name="adapter")


def _collect_rarely() -> None:
    """Spare the garbage collector the two million objects that imports leave behind.

    Collecting among them takes 3 of the 14 s that ``kvps ask`` took, and 1.5 s more at exit.
    """
    gc.set_threshold(200_000, 20, 50)
    atexit.register(gc.freeze)


def main() -> None:
    """Run ``kvps``; the process ends with the contract's exit code."""
    _collect_rarely()
    # Progress bars of the model library are not ours to show.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a narrow terminal shows ?, it does not fail
    try:
        app()  # exits by itself: 0, 2 for usage, 130 where interrupted
    except KVPacketError as error:
        sys.exit(fail(str(error), error.exit_code))
    except BrokenPipeError:
        sys.exit(0)
