"""``kvps ingest``, ``list``, ``show``, ``delete`` and ``stats``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kvpacket_store.cli.output import (
    JSON_OPTION,
    NAMESPACE_OPTION,
    err,
    out,
    plain,
    print_json,
    table,
)
from kvpacket_store.cli.page import write_text
from kvpacket_store.cli.stats_page import stats_page
from kvpacket_store.errors import NotFoundError

if TYPE_CHECKING:
    from kvpacket_store.api import IngestProgress, IngestReport

__all__ = ["delete", "ingest", "list_documents", "show", "stats"]

StoreArgument = Annotated[str, typer.Argument(help="The store's folder.")]


def ingest(
    store: StoreArgument,
    paths: Annotated[list[str], typer.Argument(help="Files, folders, JSONL, or - for stdin.")],
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after an interruption (always done).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, change nothing.")] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Prefill documents and file their packets. What is there already costs a hash."""
    from kvpacket_store.api import Store
    from kvpacket_store.text import read_documents

    del resume  # packets are addressed by content: every ingest resumes
    documents = read_documents(paths, sys.stdin)
    with Store.open(store) as opened, _progress_bar(quiet=as_json) as progress:
        report = opened.ingest(documents, namespace=namespace, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(report.to_dict())
    else:
        _tell(report)
    if report.documents.failed:
        raise typer.Exit(1)


@contextmanager
def _progress_bar(*, quiet: bool) -> Iterator[Callable[[IngestProgress], None] | None]:
    if quiet and not err.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]prefill"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens, {task.fields[rate]} tokens/s"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[current]}"),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None, tokens=0, rate=0, current="loading the model")

        def update(now: IngestProgress) -> None:
            elapsed = bar.tasks[0].elapsed or 1.0
            bar.update(
                task,
                completed=now.documents,
                tokens=now.tokens,
                rate=round(now.tokens / elapsed),
                current=escape(now.document_id[:40]),
            )

        yield update


def _tell(report: IngestReport) -> None:
    """Say in words what an ingest did."""
    documents, packets = report.documents, report.packets
    out.print(
        f"{documents.added} added, {documents.updated} updated, {documents.unchanged} unchanged, "
        f"{documents.failed} failed; {packets.added} packets prefilled, {packets.reused} reused"
    )
    if report.ratio:
        out.print(
            f"{report.tokens} tokens in {report.elapsed_ms / 1e3:.1f} s; "
            f"{report.raw_bytes / 1e6:.1f} MB of K,V stored in {report.stored_bytes / 1e6:.1f} MB "
            f"(ratio {report.ratio:.2f})"
        )
    for failure in report.errors:
        err.print(plain(f"  {failure.id}: {failure.error}"))


def list_documents(
    store: StoreArgument,
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    limit: Annotated[int, typer.Option(help="Documents a page.")] = 100,
    after: Annotated[str | None, typer.Option(help="Last page's `next`.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """List documents, ordered by id."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        page = opened.list(namespace=namespace, limit=limit, after=after)
    if as_json:
        print_json(page.to_dict())
        return
    rows: list[list[object]] = [
        [d.id, d.tokens, len(d.packets), str(d.metadata.get("title", ""))] for d in page.documents
    ]
    out.print(table("", ["id", "tokens", "packets", "title"], rows))
    for document_id in page.damaged:
        err.print(plain(f"damaged: {document_id}; ingest it again"))
    if page.next:
        out.print(plain(f"more: --after {page.next}"))


def show(
    store: StoreArgument,
    document_id: Annotated[str, typer.Argument(help="The document.")],
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Show one document: text, metadata and packets."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        document: dict[str, Any] = opened.show(document_id, namespace=namespace)
    if as_json:
        print_json(document)
        return
    out.print(plain(f"{document['id']}  {document['tokens']} tokens"))
    for packet in document["packets"]:
        out.print(
            f"{packet['packet_key']}  {packet['tokens']} tokens, {packet['stored_bytes']} bytes"
        )
    out.print(plain(document["text"]))


def delete(
    store: StoreArgument,
    document_ids: Annotated[list[str], typer.Argument(help="Documents to delete.")],
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Delete documents, and the packets that no other document shares."""
    from kvpacket_store.api import Store

    deleted, absent = [], []
    with Store.open(store) as opened:
        for document_id in document_ids:
            try:
                opened.delete(document_id, namespace=namespace)
                deleted.append(document_id)
            except NotFoundError:
                absent.append(document_id)
    if as_json:
        print_json({"deleted": deleted, "absent": absent})
    else:
        out.print(f"{len(deleted)} deleted")
    for document_id in absent:
        err.print(plain(f"kvps: no document {document_id!r} in {namespace!r}"))
    if absent:
        raise typer.Exit(1)


def stats(
    store: StoreArgument,
    namespace: Annotated[str | None, typer.Option(help="One namespace; all without.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page, with a heat map of bits by layer.")
    ] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Show sizes, ratios and bits per scalar."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        report = opened.stats(namespace=namespace).to_dict()
    if html is not None:
        write_text(html, stats_page(Path(store).name, report))
    if as_json:
        print_json(report)
        return
    bits = report.pop("bits_per_scalar")
    layers = report.pop("layers")
    rows: list[list[object]] = [[key, str(value)] for key, value in report.items()]
    rows += [[f"bits per scalar, {key}", f"{value:.2f}"] for key, value in bits.items() if value]
    out.print(table("", ["what", "value"], rows))
    if layers:
        sides = [side for side in ("k", "v", "k_base", "v_base") if layers[0][side] is not None]
        rows = [[layer["layer"], *(layer[side] for side in sides)] for layer in layers]
        heads = [f"bits, {side.replace('_', ', ')}" for side in sides]
        out.print(table("", ["layer", *heads], rows))
