"""``kvps verify``, ``gc``, ``compact``, ``pin``, ``unpin``, ``export`` and ``import``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvpacket_store.cli.output import JSON_OPTION, NAMESPACE_OPTION, err, out, plain, print_json
from kvpacket_store.errors import NotFoundError

if TYPE_CHECKING:
    from kvpacket_store.store import Damage, SpaceReport

__all__ = ["compact", "export", "gc", "import_", "pin", "unpin", "verify"]

StoreArgument = Annotated[str, typer.Argument(help="The store's folder.")]
DocumentArgument = Annotated[list[str], typer.Argument(help="Documents.")]
DAMAGE_REMAINS = 4


def verify(
    store: StoreArgument,
    deep: Annotated[bool, typer.Option("--deep", help="Read and decode every byte.")] = False,
    recompute: Annotated[
        int, typer.Option(min=0, help="Packets to prefill again and compare.")
    ] = 0,
    repair: Annotated[bool, typer.Option("--repair", help="Put back what is damaged.")] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Look for damage; exit code 4 where some remains."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened, _bar("verify", None) as update:
        report = opened.verify(
            deep=deep,
            recompute=recompute,
            repair=repair,
            progress=lambda checked: update(checked, None),
        )
    if as_json:
        print_json(report.to_dict())
    else:
        for found in report.remaining:
            err.print(plain(_line(found)))
        out.print(
            f"{report.checked} packets checked ({report.evicted} evicted), {report.recomputed} "
            f"prefilled again; {len(report.damaged)} damaged, {report.repaired} repaired"
        )
        if report.remaining:
            out.print(
                "what remains needs its documents: ingest them again"
                if repair
                else "answers go on: they prefill such packets again. To mend: --repair"
            )
    if report.remaining:
        raise typer.Exit(DAMAGE_REMAINS)


def gc(
    store: StoreArgument,
    grace_s: Annotated[
        int, typer.Option(min=0, help="Spare what is younger: a running ingest's packets.")
    ] = 3600,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Delete what nothing refers to, and packets past their time; sizes are live bytes."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        _tell_space(opened.gc(grace_s=grace_s), as_json)


def compact(store: StoreArgument, as_json: Annotated[bool, JSON_OPTION] = False) -> None:
    """Write the file anew without free pages; sizes are blocks on disk."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        _tell_space(opened.compact(), as_json)


def pin(
    store: StoreArgument,
    document_ids: DocumentArgument,
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Keep documents' packets whatever needs room."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        _for_each(document_ids, partial(opened.pin, namespace=namespace), "pinned", as_json)


def unpin(
    store: StoreArgument,
    document_ids: DocumentArgument,
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Let documents' packets give way to others again."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        _for_each(document_ids, partial(opened.unpin, namespace=namespace), "unpinned", as_json)


def export(
    store: StoreArgument,
    bundle: Annotated[str, typer.Argument(help="The file to make.")],
    document_ids: Annotated[
        list[str] | None, typer.Argument(help="Documents; all without.", show_default=False)
    ] = None,
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Write documents with their packets into one file."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened, _bar("export", None) as update:
        report = opened.export_bundle(
            bundle,
            document_ids or None,
            namespace=namespace,
            overwrite=overwrite,
            progress=update,
        )
    if as_json:
        print_json(report.to_dict())
        return
    out.print(
        f"{bundle}: {report.documents} documents, {report.packets} packets, "
        f"{report.bytes / 1e6:.1f} MB"
    )
    if report.missing_packets:
        out.print(f"{report.missing_packets} packets were not there; their texts travel alone")
    if report.missing_codec_packs:
        names = ", ".join(digest[:12] for digest in report.missing_codec_packs)
        out.print(f"codec packs are lost, and do not travel with their packets: {names}")


def import_(
    store: StoreArgument,
    bundle: Annotated[str, typer.Argument(help="A file that `kvps export` made.")],
    namespace: Annotated[str, NAMESPACE_OPTION] = "default",
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """File a bundle's documents; every packet is decoded and checked first."""
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        report = opened.import_bundle(bundle, namespace=namespace)
    if as_json:
        print_json(report.to_dict())
    else:
        out.print(
            f"{report.added} added, {report.updated} updated, {report.unchanged} unchanged; "
            f"{report.packets_added} packets filed, {report.packets_reused} were there"
        )
        for failure in report.errors:
            err.print(plain(f"  {failure.id}: {failure.error}"))
    if report.errors:
        raise typer.Exit(1)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
    columns = (
        TextColumn(f"[bold]{what}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def update(done: int, of: int | None) -> None:
            bar.update(task, completed=done, total=of if of is not None else total)

        yield update


def _line(found: Damage) -> str:
    where = f"packet {found.packet_key[:12]}" if found.packet_key else "store"
    documents = f" ({', '.join(found.document_ids)})" if found.document_ids else ""
    return f"  {where}{documents}: {found.reason}"


def _tell_space(report: SpaceReport, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    out.print(f"{report.before_bytes / 1e6:.1f} MB before, {report.after_bytes / 1e6:.1f} MB after")
    out.print(
        f"{report.deleted_packets} packets and {report.deleted_rows} rows deleted, "
        f"{report.evicted_packets} packets evicted"
    )


def _for_each(
    document_ids: list[str], action: Callable[[str], None], what: str, as_json: bool
) -> None:
    """Do it for those that are there; name the others, and end with exit code 1."""
    done, absent = [], []
    for document_id in document_ids:
        try:
            action(document_id)
            done.append(document_id)
        except NotFoundError as error:
            absent.append(document_id)
            err.print(plain(f"kvps: {error}"))
    if as_json:
        print_json({what: done, "absent": absent})
    else:
        out.print(f"{len(done)} {what}")
    if absent:
        raise typer.Exit(1)
