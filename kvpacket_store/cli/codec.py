"""``kvps codec``: packs of level ``linear``, and a store's change of level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvpacket_store.cli.base_step import BASE_STEP_HELP, split_steps
from kvpacket_store.cli.output import JSON_OPTION, err, out, plain, print_json, table
from kvpacket_store.cli.progress import progress_bar
from kvpacket_store.cli.upkeep import DAMAGE_REMAINS

if TYPE_CHECKING:
    from kvpacket_store.api.codec_training import TrainReport

__all__ = ["app"]

app = typer.Typer(help="Codec packs of level linear; another level for what is stored.")

StoreArgument = Annotated[str, typer.Argument(help="The store's folder.")]


@app.command("train")
def train(
    store: StoreArgument,
    tokens: Annotated[int, typer.Option(help="To look at; a tenth of them is held out.")] = 24_000,
    corpus: Annotated[
        Path | None,
        typer.Option(help="Text, folder or JSONL.", show_default="the store's packets"),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="One namespace's packets; all without.")
    ] = None,
    back: Annotated[
        int | None,
        typer.Option(
            help="Layers that predictions look back, 0 to 3.", show_default="2 if it fits"
        ),
    ] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the pack here too.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Fit a codec pack to the model's K and V; minutes. It is put into the store's folder."""
    from kvpacket_store.api import Store
    from kvpacket_store.api.codec_training import train_codec_pack

    with Store.open(store) as opened, progress_bar("") as update:
        report = train_codec_pack(
            opened,
            tokens=tokens,
            corpus=corpus,
            namespace=namespace,
            back=back,
            out=out_file,
            progress=update,
        )
    if as_json:
        print_json(report.to_dict())
    else:
        _tell(report, store)


def _tell(report: TrainReport, store: str) -> None:
    bits = report.bits_per_scalar
    out.print(
        f"codec pack {report.digest[:12]}, {report.pack_bytes / 1e6:.1f} MB, from "
        f"{report.tokens} tokens of {report.documents} documents. Bits a scalar on "
        f"{report.held_out_tokens} tokens held out:"
    )
    rows: list[list[object]] = [["fast", "", bits["fast"]], ["linear", "", bits["linear"]]]
    for step, of in bits["layers"].items():
        rows.append([f"linear, 2 layers, {step}", f"{of['base']:.2f}", of["total"]])
    out.print(table("", ["codec", "base", "total"], rows))
    use = f"kvps codec recode {store} --codec linear --pack {report.digest[:12]}"
    out.print(plain(f"{report.path}\nTo use it: {use}"))


@app.command("list")
def list_packs(store: StoreArgument, as_json: Annotated[bool, JSON_OPTION] = False) -> None:
    """List the codec packs that ship and those in the store's folder."""
    from kvpacket_store.api import Store
    from kvpacket_store.cli.codec_packs import find_packs

    with Store.open(store) as opened:
        found = [pack.to_dict(opened) for pack in find_packs(opened)]
    if as_json:
        print_json({"packs": found})
        return
    rows: list[list[object]] = [
        [
            str(one["digest"] or one["file"])[:12],
            one["model"] or "",
            one["kv_dtype"] or "",
            f"{one['bytes'] / 1e6:.1f} MB",
            one["where"],
            "in use" if one["in_use"] else "fits" if one["fits"] else "",
        ]
        for one in found
    ]
    if not rows:
        out.print("no codec packs; make one: kvps codec train")
        return
    out.print(table("", ["digest", "model", "kv dtype", "size", "where", ""], rows))
    for one in found:
        if one["damage"]:
            err.print(plain(f"{one['file']}: {one['damage']}"))


@app.command("steps")
def steps(
    store: StoreArgument,
    bits: Annotated[float, typer.Option(help="Of a base, a scalar, to show steps for.")] = 2.4,
    prompts: Annotated[int, typer.Option(help="To measure on; minutes each.", min=1)] = 2,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure what each step of a base does to the model's answers; kept in the store's folder."""
    from kvpacket_store.api import Store
    from kvpacket_store.api.step_costs import measure_step_costs

    with Store.open(store) as opened, progress_bar("") as update:
        costs = measure_step_costs(opened, prompts=prompts, progress=update)
        chosen = costs.steps_within(bits)
    if as_json:
        print_json({"steps": chosen, "bits_per_scalar": costs.bits_of(chosen), **costs.to_dict()})
        return
    rows: list[list[object]] = [[layer, k, v] for layer, (k, v) in enumerate(chosen)]
    out.print(table(f"{costs.bits_of(chosen):.2f} bits a scalar", ["layer", "K", "V"], rows))
    out.print(plain(f"To use them: kvps codec recode {store} --codec linear --base-step {bits}"))


@app.command("recode")
def recode(
    store: StoreArgument,
    codec: Annotated[str, typer.Option(help="raw, fast or linear.")],
    layers: Annotated[
        int | None, typer.Option(help="1 or 2.", show_default="2 for linear, else 1")
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(
            help="A digest's beginning or a file.", show_default="in use, newest, or shipped"
        ),
    ] = None,
    base_step: Annotated[
        str | None, typer.Option(help=BASE_STEP_HELP, show_default="as it is")
    ] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Store every packet anew at another level. Goes on where an earlier run was interrupted."""
    from kvpacket_store.api import Store
    from kvpacket_store.api.recode import recode as recode_store
    from kvpacket_store.cli.codec_packs import named_pack

    with Store.open(store) as opened, progress_bar("recode") as update:
        chosen = named_pack(opened, pack) if pack is not None else None
        report = recode_store(
            opened,
            codec,
            layers=layers,
            pack=chosen,
            base_step=split_steps(base_step),
            progress=lambda done, total: update("", done / max(total, 1)),
        )
    if as_json:
        print_json(report.to_dict())
    else:
        out.print(
            f"{report.recoded} packets recoded, {report.unchanged} left as they were; "
            f"{report.bytes_before / 1e6:.1f} MB before, {report.bytes_after / 1e6:.1f} MB after"
        )
    for damage in report.skipped:
        err.print(plain(f"  packet {(damage.packet_key or '?')[:12]}: {damage.reason}"))
    if report.skipped:
        err.print(plain(f"{len(report.skipped)} skipped; to mend: kvps verify {store} --repair"))
        raise typer.Exit(DAMAGE_REMAINS)
